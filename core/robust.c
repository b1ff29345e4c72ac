/* SPDX-License-Identifier: MIT */
#include "robust.h"
#include "bug.h"
#include "lock.h"
#include "vm.h"
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/types.h>

#define FUTEX_OFFSET ((long)offsetof(struct vm_robust, word) - (long)offsetof(struct vm_robust, link))

#define UNKNOWN ((ptrdiff_t)0)
#define NONE	((ptrdiff_t)1) /* no list that we could join: then a holder that dies is not noticed */

/* Where a thread's list is, seen from pthread_self(); the C library has it at the same place in every thread. */
static ptrdiff_t list_offset = UNKNOWN;

static struct robust_list_head *my_list(void)
{
	ptrdiff_t offset = __atomic_load_n(&list_offset, __ATOMIC_RELAXED);
	struct robust_list_head *head = NULL;

	if (offset == UNKNOWN) {
		bool usable = !vm_sys->get_robust_list(&head) && head && head->futex_offset == FUTEX_OFFSET;

		offset = usable ? (char *)head - (char *)pthread_self() : NONE;
		__atomic_store_n(&list_offset, offset, __ATOMIC_RELAXED);
	}
	return offset == NONE ? NULL : (struct robust_list_head *)((char *)pthread_self() + offset);
}

/* What the kernel must see in this order when the thread is killed; it looks from this CPU. */
static void in_order(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Returns what the program was in the middle of, when a fault of its own brought us here. */
static struct robust_list *begin(struct vm_robust *r, struct robust_list_head *head)
{
	struct robust_list *pending = head ? head->list_op_pending : NULL;

	if (head)
		head->list_op_pending = &r->link;
	in_order();
	return pending;
}

static void end(struct robust_list_head *head, struct robust_list *pending)
{
	in_order();
	if (head)
		head->list_op_pending = pending;
}

static void link_in(struct vm_robust *r, struct robust_list_head *head)
{
	if (!head)
		return;
	r->link.next = head->list.next;
	in_order();
	head->list.next = &r->link;
}

/* Whatever stands before it was put there by us, too. */
static void link_out(struct vm_robust *r, struct robust_list_head *head)
{
	struct robust_list *p = &head->list;

	if (!head)
		return;
	while (p->next != &r->link)
		p = p->next;
	p->next = r->link.next;
}

/* Nobody alive has it; more: bits to set beside our number. */
static bool grab(struct vm_robust *r, uint32_t *old, uint32_t more)
{
	uint32_t mine = (uint32_t)vm_sys->gettid() | more | (*old & FUTEX_WAITERS);

	return __atomic_compare_exchange_n(&r->word, old, mine, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static int taken(uint32_t old)
{
	return old & FUTEX_OWNER_DIED ? -EOWNERDEAD : 0;
}

int vm_robust_try(struct vm_robust *r)
{
	struct robust_list_head *head = my_list();
	struct robust_list *pending = begin(r, head);
	uint32_t old;
	int err = -EBUSY;

	old = __atomic_load_n(&r->word, __ATOMIC_RELAXED);
	while (!(old & FUTEX_TID_MASK))
		if (grab(r, &old, 0)) {
			link_in(r, head);
			err = taken(old);
			break;
		}
	end(head, pending);
	return err;
}

/* A wake-up can be lost: the waiter that got it is killed, while a thread that had not waited has the lock.
 * So waiters look again now and then. */
static void wait_while(struct vm_robust *r, uint32_t seen, uint64_t until)
{
	uint64_t left = until - vm_deadline(0);
	struct timespec ts = {.tv_sec = 1};

	if (left < 1000)
		ts = (struct timespec){.tv_nsec = (long)left * 1000000};
	(void)vm_sys->futex(&r->word, FUTEX_WAIT, seen, &ts);
}

static bool lock_until(struct vm_robust *r, uint64_t until, uint32_t *ret_old)
{
	uint32_t old = __atomic_load_n(&r->word, __ATOMIC_RELAXED);

	for (;;) {
		if (!(old & FUTEX_TID_MASK)) {
			if (grab(r, &old, FUTEX_WAITERS)) /* there may be others who wait */
				break;
		} else if (vm_is_past(until)) {
			return false;
		} else if ((old & FUTEX_WAITERS) ||
			   __atomic_compare_exchange_n(&r->word, &old, old | FUTEX_WAITERS, false,
						       __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
			wait_while(r, old | FUTEX_WAITERS, until);
			old = __atomic_load_n(&r->word, __ATOMIC_RELAXED);
		}
	}
	*ret_old = old;
	return true;
}

int vm_robust_lock_within(struct vm_robust *r, unsigned msec)
{
	struct robust_list_head *head = my_list();
	struct robust_list *pending = begin(r, head);
	uint32_t old;
	bool locked = lock_until(r, vm_deadline(msec), &old);

	if (locked)
		link_in(r, head);
	end(head, pending);
	return locked ? taken(old) : -ETIMEDOUT;
}

int vm_robust_lock(struct vm_robust *r)
{
	return vm_robust_lock_within(r, VM_FOREVER);
}

void vm_robust_unlock(struct vm_robust *r)
{
	struct robust_list_head *head = my_list();
	struct robust_list *pending = begin(r, head);

	link_out(r, head);
	in_order();
	if (__atomic_exchange_n(&r->word, 0, __ATOMIC_RELEASE) & FUTEX_WAITERS)
		(void)vm_sys->futex(&r->word, FUTEX_WAKE, 1, NULL); /* cannot fail on a mapped word */
	end(head, pending);
}
