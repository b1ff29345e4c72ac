/* SPDX-License-Identifier: MIT */
/*
 * A fault is served on the stack that the kernel delivers it on: the program's alternate one, which may be
 * hardly larger than the signal's frame, or that of a thread with the least there can be. Loading a page, or
 * a commit before the end, needs more, and a backend that is a library much more.
 */
#include "own_stack.h"
#include <stdatomic.h>
#include <stdint.h>

#define NSTACKS	  8u /* threads beyond that use what they have */
#define STACK_LEN (96u << 10)

static char stacks[NSTACKS][STACK_LEN] __attribute__((aligned(64)));
static _Atomic(uint32_t) taken; /* bit per stack */

/* fn(arg) with the stack pointer at top. Backtraces go through it: the frame is found by the frame pointer. */
void shim_switch_stack(void *top, void (*fn)(void *arg), void *arg) __attribute__((visibility("hidden")));
#if defined(__x86_64__)
__asm__(".text\n"
	".type shim_switch_stack, @function\n"
	"shim_switch_stack:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	push %rbp\n"
	"	.cfi_def_cfa_offset 16\n"
	"	.cfi_offset %rbp, -16\n"
	"	mov %rsp, %rbp\n"
	"	.cfi_def_cfa_register %rbp\n"
	"	mov %rdi, %rsp\n"
	"	mov %rdx, %rdi\n"
	"	call *%rsi\n"
	"	mov %rbp, %rsp\n"
	"	pop %rbp\n"
	"	.cfi_def_cfa %rsp, 8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size shim_switch_stack, .-shim_switch_stack\n");
#elif defined(__aarch64__)
__asm__(".text\n"
	".type shim_switch_stack, @function\n"
	"shim_switch_stack:\n"
	"	.cfi_startproc\n"
	"	hint #34\n" /* bti c */
	"	stp x29, x30, [sp, #-16]!\n"
	"	.cfi_def_cfa_offset 16\n"
	"	.cfi_offset 29, -16\n"
	"	.cfi_offset 30, -8\n"
	"	mov x29, sp\n"
	"	.cfi_def_cfa_register 29\n"
	"	mov sp, x0\n"
	"	mov x0, x2\n"
	"	blr x1\n"
	"	mov sp, x29\n"
	"	ldp x29, x30, [sp], #16\n"
	"	.cfi_def_cfa 31, 0\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size shim_switch_stack, .-shim_switch_stack\n");
#else
#error "switch stacks on this machine"
#endif

void shim_on_own_stack(void (*fn)(void *arg), void *arg)
{
	uint32_t bit;

	for (unsigned i = 0; i < NSTACKS; i++) {
		bit = 1u << i;
		if (atomic_fetch_or(&taken, bit) & bit)
			continue;
		shim_switch_stack(stacks[i] + STACK_LEN, fn, arg);
		atomic_fetch_and(&taken, ~bit);
		return;
	}
	fn(arg);
}
