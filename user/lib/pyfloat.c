// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/lib/pyfloat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *pyfloat__format(double value, int precision, char buffer[PYFLOAT_MAX])
{
	char c_text[PYFLOAT_MAX], digits[PYFLOAT_MAX];
	char *exponent, *out = buffer;
	int point, cnt = 0;

	if (isnan(value))
		return strcpy(buffer, "nan");
	if (signbit(value))
		*out++ = '-';
	if (isinf(value)) {
		strcpy(out, "inf");
		return buffer;
	}
	/*
	 * glibc's %e is exact and rounds half to even, so it gives the digits of CPython's dtoa in
	 * mode 2.
	 */
	snprintf(c_text, sizeof(c_text), "%.*e", precision - 1, fabs(value));
	exponent = strchr(c_text, 'e');
	for (const char *c = c_text; c < exponent; c++)
		if (*c >= '0' && *c <= '9')
			digits[cnt++] = *c;
	while (cnt > 1 && digits[cnt - 1] == '0')
		cnt--;
	/* Digits before the point; at 0 and below, zeros follow the point. */
	point = atoi(exponent + 1) + 1;
	if (point <= -4 || point > precision - 1) {
		*out++ = digits[0];
		if (cnt > 1)
			*out++ = '.';
		for (int i = 1; i < cnt; i++)
			*out++ = digits[i];
		sprintf(out, "e%+03d", point - 1);
		return buffer;
	}
	if (point <= 0)
		*out++ = '0';
	for (int i = 0; i < point; i++)
		*out++ = i < cnt ? digits[i] : '0';
	*out++ = '.';
	for (int i = point; i < 0; i++)
		*out++ = '0';
	for (int i = point > 0 ? point : 0; i < cnt; i++)
		*out++ = digits[i];
	if (cnt <= point)
		*out++ = '0';
	*out = 0;
	return buffer;
}
