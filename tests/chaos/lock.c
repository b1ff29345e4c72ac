/* SPDX-License-Identifier: MIT */
/* A lock in the file. Whoever finds that its holder is no more takes it over, and ends what that one began. */
#include "chaos.h"
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HANG_SECONDS 20

static uint32_t token(const struct worker *w)
{
	return w->incarnation << 8 | (w->lane + 1);
}

static bool is_gone(uint32_t holder)
{
	const struct slot *s = &ledger->slot[((holder & 255) - 1) / NTHREADS % NSLOTS];

	return !get32(&s->pid) || (get32(&s->incarnation) & 0xffffff) != holder >> 8;
}

void lock_file(struct worker *w, unsigned f)
{
	uint32_t *word = page_at(w->view[f], AT_LOCK), old = 0;
	struct timespec ts = {.tv_nsec = 2000000};
	time_t begin = time(NULL);

	while (!__atomic_compare_exchange_n(word, &old, token(w), false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST)) {
		if (old && is_gone(old) &&
		    __atomic_compare_exchange_n(word, &old, token(w), false, __ATOMIC_SEQ_CST,
						__ATOMIC_SEQ_CST))
			return;
		if (old)
			(void)syscall(SYS_futex, word, FUTEX_WAIT, old, &ts, NULL, 0);
		if (time(NULL) > begin + HANG_SECONDS) {
			violation("lane %u: the lock of %s is not to be had: %x has it, who is %s", w->lane,
				  file_name(f), old, is_gone(old) ? "gone" : "there");
			_exit(0);
		}
		old = 0;
	}
}

void unlock_file(struct worker *w, unsigned f)
{
	uint32_t *word = page_at(w->view[f], AT_LOCK), was = __atomic_exchange_n(word, 0, __ATOMIC_SEQ_CST);

	if (was != token(w))
		violation("lane %u: the lock of %s was held by %x, and then by %x", w->lane, file_name(f),
			  token(w), was);
	(void)syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void unlock_left(struct worker *w, unsigned f)
{
	if (get32(page_at(w->view[f], AT_LOCK)) == token(w))
		unlock_file(w, f);
}

void mutex_make(void *at)
{
	pthread_mutexattr_t attr;

	(void)pthread_mutexattr_init(&attr);
	(void)pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	(void)pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	(void)pthread_mutex_init(at, &attr);
	(void)pthread_mutexattr_destroy(&attr);
}
