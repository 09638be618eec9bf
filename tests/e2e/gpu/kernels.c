/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Host functions of kernels, which nobody calls. */
void axpy(void) __asm__("_Z4axpyPfi");
void axpy(void)
{
}

void grad(void) __asm__("_Z4gradPf");
void grad(void)
{
	__asm__ volatile("");
}
