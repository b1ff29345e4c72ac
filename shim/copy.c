/* SPDX-License-Identifier: MIT */
#include "real.h"
#include "copy.h"
#include <string.h>
#include <ucontext.h>

#define SMALLEST_PAGE 4096u

/*
 * Any instruction in [shim_guarded_start, shim_guarded_end) may fault; the handler then goes on at
 * shim_guarded_end. Both functions return the number of bytes that are left: 0 when nothing went wrong.
 *
 *	size_t shim_guarded_copy(void *dst, const void *src, size_t len)
 *	size_t shim_guarded_store(void *byte)	stores what is there, atomically
 */
size_t shim_guarded_copy(void *dst, const void *src, size_t len);
size_t shim_guarded_store(void *byte);
extern const char shim_guarded_start[], shim_guarded_end[];

#define FUNCTION(name)                                                                                       \
	".globl " name "\n.hidden " name "\n.type " name ", %function\n" name ":\n\t.cfi_startproc\n"
#define END(name)  "\t.cfi_endproc\n\t.size " name ", . - " name "\n"
#define MARK(name) ".globl " name "\n.hidden " name "\n" name ":\n"

/* clang-format off */
#if defined(__x86_64__)
/* What is done is told by where dst stands: rdi, in r8 where it will. Words first: an int is stored in one
 * piece. */
__asm__(".text\n"
	FUNCTION("shim_guarded_store")
	"	lea 1(%rdi), %r8\n"
	"	jmp 1f\n"
	END("shim_guarded_store")
	FUNCTION("shim_guarded_copy")
	"	lea (%rdi,%rdx), %r8\n"
	"	mov %rdx, %rcx\n"
	"	shr $2, %rcx\n"
	"	and $3, %edx\n"
	"	jmp 2f\n"
	MARK("shim_guarded_start")
	"1:	lock orb $0, (%rdi)\n"
	"	inc %rdi\n"
	"	jmp 3f\n"
	"2:	rep movsl\n"
	"	mov %edx, %ecx\n"
	"	rep movsb\n"
	"3:\n"
	MARK("shim_guarded_end")
	"	mov %r8, %rax\n"
	"	sub %rdi, %rax\n"
	"	ret\n"
	END("shim_guarded_copy"));
#define PC(uc) ((uc)->uc_mcontext.gregs[REG_RIP])
#elif defined(__aarch64__)
__asm__(".text\n"
	FUNCTION("shim_guarded_store")
	"	add x4, x0, #1\n"
	"	b 1f\n"
	END("shim_guarded_store")
	FUNCTION("shim_guarded_copy")
	"	add x4, x0, x2\n"
	"	b 2f\n"
	MARK("shim_guarded_start")
	"1:	ldxrb w3, [x0]\n"
	"	stxrb w5, w3, [x0]\n"
	"	cbnz w5, 1b\n"
	"	add x0, x0, #1\n"
	"	b 4f\n"
	"2:	subs x2, x2, #4\n"
	"	b.lo 3f\n"
	"	ldr w3, [x1], #4\n"
	"	str w3, [x0], #4\n"
	"	b 2b\n"
	"3:	cmp x0, x4\n"
	"	b.eq 4f\n"
	"	ldrb w3, [x1], #1\n"
	"	strb w3, [x0], #1\n"
	"	b 3b\n"
	"4:\n"
	MARK("shim_guarded_end")
	"	sub x0, x4, x0\n"
	"	ret\n"
	END("shim_guarded_copy"));
#define PC(uc) ((uc)->uc_mcontext.pc)
#else
#error "guarded copies for this machine"
#endif
/* clang-format on */

bool shim_copy_recover(void *uc)
{
	uintptr_t pc = (uintptr_t)PC((ucontext_t *)uc);

	if (pc < (uintptr_t)shim_guarded_start || pc >= (uintptr_t)shim_guarded_end)
		return false;
	PC((ucontext_t *)uc) = (uintptr_t)shim_guarded_end;
	return true;
}

bool shim_copy(void *dst, const void *src, size_t len)
{
	return shim_guarded_copy(dst, src, len) == 0;
}

static size_t to_page_end(const void *addr)
{
	return SMALLEST_PAGE - ((uintptr_t)addr & (SMALLEST_PAGE - 1));
}

bool shim_touch(const void *addr, size_t len, bool write)
{
	char *p = (char *)addr, byte;
	size_t n;

	if (len > UINTPTR_MAX - (uintptr_t)addr)
		return false;
	for (; len; p += n, len -= n) {
		if (write ? shim_guarded_store(p) : shim_guarded_copy(&byte, p, 1))
			return false;
		n = to_page_end(p) < len ? to_page_end(p) : len;
	}
	return true;
}

bool shim_copy_string(char *dst, size_t len, const char *src)
{
	size_t n;

	for (; len; dst += n, src += n, len -= n) {
		n = to_page_end(src) < len ? to_page_end(src) : len;
		if (!shim_copy(dst, src, n))
			return false;
		if (memchr(dst, 0, n))
			return true;
	}
	return false;
}

size_t shim_string_size(const char *s)
{
	const char *p = s, *end = NULL;
	size_t n;

	for (; !end; p += n) {
		n = to_page_end(p);
		if (!shim_touch(p, 1, false))
			return 0;
		end = memchr(p, 0, n);
	}
	return (size_t)(end - s) + 1;
}
