/* SPDX-License-Identifier: MIT */
/*
 * Views: who is inside of a mapping, and who may resize or close it.
 *
 *	state  63      62         61..31    30..0
 *	       CLOSED  EXCLUSIVE  exports   users
 *
 *	enter, export    open                  -> one more is there
 *	leave, unexport  any                   -> one less
 *	resize           open, no others there -> EXCLUSIVE, and back when it is done
 *	close            any                   -> CLOSED
 *	the last one out CLOSED, nobody there  -> CLOSED EXCLUSIVE: the mapping is given back
 *
 * Each arrow is one compare-and-swap, so that of several who leave exactly one finds itself the last, and who
 * is refused was never there. One who resizes is a user, too, until it is done: the view does not go under
 * it.
 */
#include "internal.h"
#include <errno.h>
#include <sys/mman.h>

#define CLOSED	  (1ull << 63)
#define EXCLUSIVE (1ull << 62) /* being resized, or given back */
#define EXPORT	  (1ull << 31)
#define USER	  1ull

static uint64_t nusers(uint64_t state)
{
	return state & (EXPORT - 1);
}

static uint64_t nexports(uint64_t state)
{
	return (state & (EXCLUSIVE - 1)) / EXPORT;
}

static uint64_t look(struct vm_view *v)
{
	return __atomic_load_n(&v->state, __ATOMIC_ACQUIRE);
}

/* From *was to now. False: *was has changed. */
static bool step(struct vm_view *v, uint64_t *was, uint64_t now)
{
	return __atomic_compare_exchange_n(&v->state, was, now, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* ---- come and go ---- */

int vm_view_open(struct vm_view *v, struct vm_fileh *h, size_t len, int prot, int flags, uint64_t off,
		 void (*gone)(struct vm_view *v))
{
	bool writable = flags == MAP_SHARED && (prot & PROT_WRITE);
	void *addr;
	int err;

	if ((flags != MAP_SHARED && flags != MAP_PRIVATE) || off % VM_PAGE)
		return -EINVAL;
	err = vm_map(h, NULL, len, prot, flags, off, writable, &addr);
	if (err)
		return err;
	*v = (struct vm_view){
		.fileh = h,
		.off = off,
		.prot = prot,
		.can_resize = writable,
		.addr = addr,
		.len = len,
		.maplen = vm_page_up(len),
		.gone = gone,
	};
	return 0;
}

/* The caller made the view CLOSED and EXCLUSIVE, with nobody there. */
static int dispose(struct vm_view *v)
{
	int err = vm_unmap(v->addr, v->maplen);

	if (err) {
		__atomic_store_n(&v->state, CLOSED, __ATOMIC_RELEASE); /* for a close that tries again */
		return err;
	}
	if (v->gone)
		v->gone(v); /* v may be no more */
	return 0;
}

static int begin_use(struct vm_view *v, uint64_t unit)
{
	uint64_t s = look(v);

	do {
		if (s & CLOSED)
			return -EBADF;
		if (s & EXCLUSIVE)
			return -EAGAIN;
		BUG_ON(nusers(s) == EXPORT - 1 || nexports(s) == EXPORT - 1);
	} while (!step(v, &s, s + unit));
	return 0;
}

static int end_use(struct vm_view *v, uint64_t unit)
{
	uint64_t s = look(v);
	bool is_last;

	do {
		BUG_ON(!(unit == USER ? nusers(s) : nexports(s)));
		is_last = s - unit == CLOSED;
	} while (!step(v, &s, is_last ? CLOSED | EXCLUSIVE : s - unit));
	return is_last ? dispose(v) : 0;
}

int vm_view_close(struct vm_view *v)
{
	uint64_t s = look(v);
	bool is_last;

	do {
		if ((s & CLOSED) && s != CLOSED)
			return 0; /* the last one out disposes, or has */
		is_last = (s | CLOSED) == CLOSED;
	} while (!step(v, &s, is_last ? CLOSED | EXCLUSIVE : s | CLOSED));
	return is_last ? dispose(v) : 0;
}

/* ---- use ---- */

static int use(struct vm_view *v, uint64_t unit, void **ret_addr, size_t *ret_len)
{
	int err = begin_use(v, unit);

	if (err)
		return err;
	*ret_addr = v->addr;
	*ret_len = __atomic_load_n(&v->len, __ATOMIC_RELAXED);
	return 0;
}

int vm_view_enter(struct vm_view *v, void **ret_addr, size_t *ret_len)
{
	return use(v, USER, ret_addr, ret_len);
}

int vm_view_leave(struct vm_view *v)
{
	return end_use(v, USER);
}

int vm_view_export(struct vm_view *v, void **ret_addr, size_t *ret_len)
{
	return use(v, EXPORT, ret_addr, ret_len);
}

int vm_view_unexport(struct vm_view *v)
{
	return end_use(v, EXPORT);
}

/* ---- resize ---- */

/* May the view become len long now, ninside of its users being the caller? */
static int may_resize(struct vm_view *v, uint64_t s, size_t len, unsigned ninside)
{
	bool others;

	BUG_ON(nusers(s) < ninside);
	others = nusers(s) > ninside;
	if (s & CLOSED)
		return -EBADF;
	if (s & EXCLUSIVE)
		return -EAGAIN;
	/* whether it can grow in place only one who is alone finds out */
	if (nexports(s) && (others || len < __atomic_load_n(&v->len, __ATOMIC_RELAXED)))
		return -EBUSY;
	return others ? -EAGAIN : 0;
}

static int begin_exclusive(struct vm_view *v, size_t len, unsigned ninside)
{
	uint64_t s = look(v);
	int err;

	do {
		err = may_resize(v, s, len, ninside);
		if (err)
			return err;
	} while (!step(v, &s, s | EXCLUSIVE));
	return 0;
}

static void end_exclusive(struct vm_view *v)
{
	(void)__atomic_fetch_and(&v->state, ~EXCLUSIVE, __ATOMIC_RELEASE);
}

/* Give back what is mapped from maplen on. What cannot be given back stays, beyond the view's end, until all
 * of it goes. */
static void trim(struct vm_view *v, size_t maplen)
{
	if (maplen < v->maplen && !vm_unmap((char *)v->addr + maplen, v->maplen - maplen))
		v->maplen = maplen;
}

/* The same pages at another place, where maplen fits. The old place goes last, when nothing else can fail,
 * and what it cannot be without is taken back. */
static int move(struct vm_view *v, size_t maplen, uint64_t size)
{
	uint64_t was = vm_fileh_size(v->fileh);
	void *addr;
	int err;

	err = vm_map(v->fileh, NULL, maplen, v->prot, MAP_SHARED, v->off, true, &addr);
	if (err)
		return err;
	err = vm_fileh_resize_busy(v->fileh, size);
	if (err)
		goto unmap;
	err = vm_unmap(v->addr, v->maplen);
	if (err)
		goto resize;
	v->addr = addr;
	v->maplen = maplen;
	return 0;
resize:
	(void)vm_fileh_resize_busy(v->fileh, was); /* err is the one to report */
unmap:
	(void)vm_unmap(addr, maplen); /* just made */
	return err;
}

/* Exclusive, busy, gate closed. */
static int change(struct vm_view *v, size_t len)
{
	size_t maplen = vm_page_up(len), was = v->maplen;
	uint64_t size = v->off + len;
	void *addr;
	int err;

	if (maplen > was) {
		if (!vm_remap(v->addr, was, maplen, 0, NULL, &addr))
			v->maplen = maplen;
		else if (nexports(look(v)))
			return -EBUSY;
		else
			return move(v, maplen, size);
	}
	err = vm_fileh_resize_busy(v->fileh, size);
	trim(v, err ? was : maplen);
	return err;
}

int vm_view_resize(struct vm_view *v, size_t len, unsigned ninside, void **ret_addr)
{
	struct vm_fileh *h = v->fileh;
	int err, e;

	if (look(v) & CLOSED)
		return -EBADF;
	if (!len || len > SIZE_MAX - VM_PAGE || v->off + len < v->off ||
	    vm_npages(v->off + len) > VM_MAX_PGOFF)
		return -EINVAL;
	if (!v->can_resize)
		return -EACCES;
	err = begin_use(v, USER);
	if (err)
		return err;
	ninside++;
	err = may_resize(v, look(v), len, ninside); /* an answer before waiting for anything */
	if (err)
		goto leave;
	/* what is waited for is waited for while others may still enter */
	vm_fileh_begin_busy(h);
	vm_fileh_lock(h);
	vm_fileh_gate(h, VM_GATE_CLOSED);
	vm_fileh_unlock(h);
	err = begin_exclusive(v, len, ninside);
	if (!err) {
		err = change(v, len);
		if (!err) {
			__atomic_store_n(&v->len, len, __ATOMIC_RELAXED);
			if (ret_addr)
				*ret_addr = v->addr;
		}
		end_exclusive(v);
	}
	vm_fileh_end_busy(h);
leave:
	e = vm_view_leave(v);
	return err ? err : e;
}
