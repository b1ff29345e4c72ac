/* SPDX-License-Identifier: MIT */
#include "real.h"
#include "lend.h"
#include <string.h>

/*
 * Rooms that are not in use, of ROOM bytes each: a fresh mapping costs more than most calls. One that is in
 * use is in nobody's way: a thread, or a signal handler, that finds none maps another.
 */
#define ROOM   (256u << 10)
#define NSPARE 8u
static _Atomic(void *) spare[NSPARE];

static void *take_room(size_t len)
{
	int saved = errno;
	void *room = NULL;
	unsigned i;

	for (i = 0; len == ROOM && !room && i < NSPARE; i++)
		if (atomic_load_explicit(&spare[i], memory_order_relaxed))
			room = atomic_exchange(&spare[i], NULL);
	if (room)
		return room;
	room = shim_real.mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			      -1, 0);
	errno = saved;
	return room == MAP_FAILED ? NULL : room;
}

static void give_room(void *room, size_t len)
{
	void *none;
	unsigned i;

	for (i = 0; len == ROOM && i < NSPARE; i++) {
		none = NULL;
		if (atomic_compare_exchange_strong(&spare[i], &none, room))
			return;
	}
	(void)shim_real.munmap(room, len);
}

void *shim_lend_room(struct shim_loan *loan, size_t len)
{
	void *room;

	if (loan->n == SHIM_LOAN_MAX)
		return NULL;
	if (len < ROOM)
		len = ROOM;
	room = take_room(len);
	if (room)
		loan->lent[loan->n++] = (struct shim_lent){.ours = room, .mapped = len};
	return room;
}

void *shim_lend(struct shim_loan *loan, const void *p, size_t len, enum shim_lend how, size_t unit,
		void *stack)
{
	struct shim_lent *l = &loan->lent[loan->n];

	if (loan->n == SHIM_LOAN_MAX || !shim_touch(p, len, how != SHIM_READS))
		return (void *)p;
	if (stack)
		loan->lent[loan->n++] = (struct shim_lent){.ours = stack};
	else if (len > SIZE_MAX / 2 || !shim_lend_room(loan, SHIM_LENT(len, how)))
		return (void *)p; /* it was touched just now, and mostly that will do */
	if (how != SHIM_FILLS_BY && !shim_copy(l->ours, p, len))
		return (void *)p;
	l->len = len;
	l->unit = unit;
	if (how != SHIM_READS)
		l->prog = (char *)p;
	if (how == SHIM_FILLS)
		l->before = memcpy(l->ours + len, l->ours, len);
	return l->ours;
}

char *shim_lend_string(const char *s, char *stack)
{
	size_t n = SHIM_STRING_MAX;

	stack[n] = '\0';
	if (shim_copy_string(stack, n, s))
		return stack;
	return shim_touch(s, n, false) ? stack : (char *)s; /* too long; or not readable */
}

struct iovec shim_lend_list(struct shim_loan *loan, const struct iovec *iov, size_t niov)
{
	struct iovec one = {0};
	size_t i, len = 0;

	for (i = 0; i < niov; i++)
		if (!shim_touch(iov[i].iov_base, iov[i].iov_len, true) ||
		    __builtin_add_overflow(len, iov[i].iov_len, &len))
			return one;
	one.iov_base = len ? shim_lend_room(loan, len) : NULL;
	one.iov_len = one.iov_base ? len : 0;
	return one;
}

void shim_lend_scatter(const struct iovec *one, ssize_t ret, const struct iovec *iov)
{
	const char *from = one->iov_base;
	size_t n, len = ret < 0 ? 0 : (size_t)ret < one->iov_len ? (size_t)ret : one->iov_len;

	for (; len; len -= n, from += n, iov++) {
		n = iov->iov_len < len ? iov->iov_len : len;
		(void)shim_copy(iov->iov_base, from, n);
	}
}

void shim_loan_drop(void *arg)
{
	struct shim_loan *loan = arg;
	unsigned i;

	for (i = 0; i < loan->n; i++)
		if (loan->lent[i].mapped)
			give_room(loan->lent[i].ours, loan->lent[i].mapped);
}

/* Another thread may have stored beside it meanwhile. By words: an int is stored in one piece. */
static void give_back_changes(const struct shim_lent *l)
{
	size_t at, stop, n;

	for (at = 0; at < l->len; at = stop) {
		for (stop = at; stop < l->len; stop += n) {
			n = l->len - stop < sizeof(int) ? l->len - stop : sizeof(int);
			if (!memcmp(l->ours + stop, l->before + stop, n))
				break;
		}
		(void)shim_copy(l->prog + at, l->ours + at, stop - at);
		stop += sizeof(int);
	}
}

void shim_loan_end(struct shim_loan *loan, long ret)
{
	int saved = errno;
	unsigned i;

	/* A copy that fails: another thread took the page away while the call lasted. */
	for (i = 0; i < loan->n; i++) {
		struct shim_lent *l = &loan->lent[i];

		if (l->before)
			give_back_changes(l);
		else if (l->prog && l->unit && ret > 0)
			(void)shim_copy(l->prog, l->ours,
					(size_t)ret < l->len / l->unit ? (size_t)ret * l->unit : l->len);
	}
	shim_loan_drop(loan);
	errno = saved;
}
