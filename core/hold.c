/* SPDX-License-Identifier: MIT */
/* Storage that other handles commit to, too: nobody else does while it is held. */
#include "internal.h"

static int note(struct vm_news *news, uint64_t start, uint64_t stop)
{
	struct vm_held *held = (struct vm_held *)news; /* its first member */

	return vm_runs_add(&held->changed, start, stop < VM_MAX_PGOFF ? stop : VM_MAX_PGOFF);
}

int vm_hold(struct vm_fileh *h, struct vm_held *ret)
{
	const struct vm_backend_ops *ops = h->file->ops;
	int err;

	*ret = (struct vm_held){.news.pages = note};
	if (!ops->hold)
		return 0;
	err = ops->hold(h->file, &ret->news);
	if (err)
		vm_runs_free(&ret->changed);
	else
		ret->is_held = true;
	return err;
}

void vm_let_go(struct vm_fileh *h, struct vm_held *held, bool seen)
{
	vm_runs_free(&held->changed);
	if (held->is_held)
		h->file->ops->let_go(h->file, seen);
	held->is_held = false;
}
