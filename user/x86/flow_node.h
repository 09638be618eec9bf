/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* An instruction as a node of the control flow graph. */
#ifndef STEPFLAME_USER_X86_FLOW_NODE_H
#define STEPFLAME_USER_X86_FLOW_NODE_H

#include <stdbool.h>
#include <stdint.h>

#define FLOW_UNKNOWN INT32_MIN

enum flow_kind {
	FLOW_PLAIN,
	FLOW_JUMP,
	FLOW_BRANCH, /* conditional jump */
	FLOW_CALL,   /* of a known address or import */
	FLOW_CALL_INDIRECT,
	FLOW_CALL_NORETURN,
	FLOW_CALL_RELEASE, /* of a function that only frees memory */
	FLOW_JUMP_INDIRECT,
	FLOW_RETURN,
	FLOW_TRAP, /* execution ends: ud2, hlt, int3 */
	FLOW_BAD,  /* does not decode */
	FLOW_OUT,  /* no instruction: the exit edge of a conditional tail call */
};

/*
 * How an instruction changes %rsp or %rbp, each as its distance below the slot of the return
 * address.
 */
enum flow_effect {
	FLOW_KEEPS,
	FLOW_ADDS,     /* itself + arg */
	FLOW_FROM_RSP, /* %rsp + arg */
	FLOW_FROM_RBP, /* %rbp + arg */
	FLOW_LOSES,    /* no longer known */
};

struct flow_node {
	uint64_t vaddr;
	/*
	 * target of a jump, branch or call; for `lea x(%rip)` and constants that are addresses of
	 * data, that address
	 */
	uint64_t target;
	uint8_t size;
	uint8_t kind;       /* enum flow_kind */
	uint8_t rsp_effect; /* enum flow_effect */
	uint8_t rbp_effect;
	int32_t rsp_arg, rbp_arg;
	uint16_t target_reg; /* register that receives a data address, by capstone's number */
	bool emulated;       /* the kernel emulates it under a uprobe */
	bool refused;        /* the kernel accepts no uprobe here */
	bool padding;        /* a nop or int3 */
	bool leaf;           /* leaves the function: return, tail jump, FLOW_OUT */
	bool root;           /* entered otherwise than from its predecessors: the entry, landing pads */
	bool reached;        /* from the entry by known edges */
	bool active;         /* part of the analysis: reached, or may be entered by the unwinder */
	int32_t rsp, rbp;    /* bytes down from the return address's slot before it executes, or FLOW_UNKNOWN */
	uint32_t succ, succ_cnt, pred, pred_cnt; /* ranges of flow.succ and flow.pred */
};

#endif
