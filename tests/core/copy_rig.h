/* SPDX-License-Identifier: MIT */
/* A copy in memory, for the tests of vm_copy_out. */
#ifndef COPY_RIG_H
#define COPY_RIG_H

#include "crew.h"

/* A copy in memory. */
struct copy {
	struct vm_copy vm; /* the first */
	struct rig *r;
	struct rig_file *f; /* what it is a copy of */
	char *mem;
	uint64_t max; /* bytes of mem */
	unsigned nbase, nstore;
	uint64_t base_len;		/* of the last one */
	bool takes_base;		/* else: page by page */
	unsigned fail_store, fail_base; /* the nth; 0: none */
	void (*in_base)(struct copy *c);
	void (*in_store)(struct copy *c); /* in the first two stores */
	char *first, *second;		  /* words for that one */
	int to, from;			  /* pipes for it */
};

static inline int take_base(struct vm_copy *vm, uint64_t len)
{
	struct copy *c = (struct copy *)vm;

	memset(c->mem, 0, c->max);
	c->base_len = len;
	if (++c->nbase == c->fail_base)
		return -EDQUOT;
	if (c->takes_base)
		rig_get(c->f, 0, c->mem, len);
	if (c->in_base)
		c->in_base(c);
	return !c->takes_base;
}

static inline int take_pages(struct vm_copy *vm, uint64_t pgoff, size_t npages, const void *buf)
{
	struct copy *c = (struct copy *)vm;

	if (++c->nstore == c->fail_store)
		return -ENOSPC;
	assert_true((pgoff + npages) * VM_PAGE <= c->max);
	memcpy(c->mem + pgoff * VM_PAGE, buf, npages * VM_PAGE);
	if (c->in_store && c->nstore <= 2)
		c->in_store(c);
	return 0;
}

static inline void copy_init(struct copy *c, struct rig *r, uint64_t npages, bool takes_base)
{
	*c = (struct copy){.vm = {.base = take_base, .store = take_pages}, .r = r, .takes_base = takes_base};
	c->f = r->f;
	c->max = npages * VM_PAGE;
	c->mem = mmap(NULL, c->max, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(c->mem, MAP_FAILED);
}

static inline void copy_free(struct copy *c)
{
	assert_int_equal(munmap(c->mem, c->max), 0);
}

static inline int copy_out(struct copy *c, bool overwrite)
{
	struct vm_copy *vm = &c->vm;

	return vm_copy_out(&c->r->h, &vm, 1, overwrite);
}

#endif
