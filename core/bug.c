/* SPDX-License-Identifier: MIT */
#define UNW_LOCAL_ONLY
#include "bug.h"
#include "vm.h"
#include <libunwind.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say(const char *text)
{
	/* stderr is all there is at this point: a failing write cannot be reported */
	(void)vm_sys_linux.write(2, text, strlen(text));
}

void vm_backtrace(void *ucontext)
{
	unw_context_t here;
	unw_cursor_t cur;
	char name[128], line[256];
	unw_word_t ip, off;
	int err;

	/* On x86-64 and aarch64 a ucontext_t is libunwind's context. */
	if (ucontext) {
		err = unw_init_local2(&cur, ucontext, UNW_INIT_SIGNAL_FRAME);
	} else {
		unw_getcontext(&here);
		err = unw_init_local(&cur, &here);
	}
	if (err)
		return;
	for (int depth = 0; depth < 64; depth++) {
		if (unw_get_reg(&cur, UNW_REG_IP, &ip) || !ip)
			return;
		if (unw_get_proc_name(&cur, name, sizeof(name), &off))
			strcpy(name, "?"), off = 0;
		(void)snprintf(line, sizeof(line), "txmap:   #%-2d 0x%lx %s+0x%lx\n", depth, (unsigned long)ip,
			       name, (unsigned long)off);
		say(line);
		if (unw_step(&cur) <= 0)
			return;
	}
}

void vm_bug(const char *what, const char *file, int line)
{
	char text[512];

	(void)snprintf(text, sizeof(text), "txmap: BUG: %s (%s:%d)\n", what, file, line);
	say(text);
	vm_backtrace(NULL);
	abort();
}
