/* SPDX-License-Identifier: MIT */
/*
 * sigaltstack. A program that keeps its whole heap in a managed file (gawk) takes its alternate stack from
 * there, too. The kernel pushes signal frames onto it without a fault that we could answer, so such a stack
 * is replaced by one of ours of the same size; the program reads its own back.
 */
#include "real.h"
#include "range.h"

#define SHIM_TAKE_STACK(x) x

/* At the low end of a replacement: what it stands for. */
struct replacement {
	stack_t programs;
	size_t len; /* of the mapping */
	char stack[] __attribute__((aligned(64)));
};

/* Is it one of ours? The mark is unlikely to stand before a stack by chance; a null stack has none. */
static struct replacement *replacement_of(const stack_t *now)
{
	struct replacement *r =
		(struct replacement *)((char *)now->ss_sp - offsetof(struct replacement, stack));

	if (now->ss_flags & SS_DISABLE || (uintptr_t)now->ss_sp % 4096 != offsetof(struct replacement, stack))
		return NULL;
	return r->len == now->ss_size + sizeof(*r) && shim_range_is_managed(r->programs.ss_sp, 1) ? r : NULL;
}

static int replace(const stack_t *wanted, stack_t *ret)
{
	size_t len = wanted->ss_size + sizeof(struct replacement);
	struct replacement *r = shim_real.mmap(NULL, len, PROT_READ | PROT_WRITE,
					       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

	if (r == MAP_FAILED)
		return -1;
	r->programs = *wanted;
	r->len = len;
	*ret = *wanted;
	ret->ss_sp = r->stack;
	return 0;
}

SHIM_EXPORT int sigaltstack(const stack_t *restrict new, stack_t *restrict old)
{
	struct replacement *was;
	stack_t before, set;
	int ret;

	if (shim_is_quiet())
		return shim_real.sigaltstack(new, old);
	if (shim_real.sigaltstack(NULL, &before))
		return -1;
	if (new && !(new->ss_flags &SS_DISABLE) && shim_range_is_managed(new->ss_sp, new->ss_size)) {
		if (replace(new, &set))
			return -1;
		ret = shim_real.sigaltstack(&set, NULL);
		if (ret)
			(void)shim_real.munmap((char *)set.ss_sp - offsetof(struct replacement, stack),
					       set.ss_size + sizeof(struct replacement));
	} else {
		ret = new ? shim_real.sigaltstack(new, NULL) : 0;
	}
	if (ret)
		return ret;
	was = replacement_of(&before);
	if (old) {
		*old = was ? was->programs : before;
		old->ss_flags = before.ss_flags;
	}
	if (was && new)
		(void)shim_real.munmap(was, was->len);
	return 0;
}

#include "alias.h"
