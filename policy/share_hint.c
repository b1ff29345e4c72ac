/* SPDX-License-Identifier: MIT */
/*
 * Might another process have a file of ours live? A page of counts, RUNTIME_DIR/shares, mapped by all
 * processes of the user that know a file by a rule: how many registries there are of each class of files. So
 * a descriptor of a file that is not mapped here costs a look into memory, and only where that says "maybe"
 * the registry is read. It says so too often when all who had a file were killed, never too seldom:
 * registries are counted before they get their first entry.
 */
#include "control_priv.h"
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

#define NAME	 "shares"
#define NCLASSES 4096u

struct hint {
	uint64_t mask;	     /* bit per class of inodes (pol_inode_class): some registry is there (atomic) */
	uint32_t nmask[64];  /* registries (atomic) */
	uint16_t n[NCLASSES]; /* the same, finer (atomic) */
	uint64_t swept_sec;   /* since boot: when somebody last looked for what killed processes left (atomic) */
};

static struct hint *hint; /* (atomic) */

static uint16_t *count_of(struct hint *h, dev_t dev, ino_t ino)
{
	return &h->n[((uint64_t)ino * 0x9e3779b97f4a7c15ull ^ (uint64_t)dev * 0xc2b2ae3d27d4eb4full) >> 52];
}

/* A full file system is to say so here, not by SIGBUS; and others may have a longer one mapped. */
static int need_room(int fd)
{
	struct stat st;
	int err = vm_sys->fstat(fd, &st);

	if (!err && !S_ISREG(st.st_mode))
		err = -EINVAL;
	if (err || ((size_t)st.st_size >= sizeof(struct hint) && (size_t)st.st_blocks * 512 >= sizeof(struct hint)))
		return err;
	return vm_sys->fallocate(fd, 0, 0, sizeof(struct hint));
}

static int map_it(int dirfd)
{
	int fd = vm_sys->openat(dirfd, NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600), err;
	struct hint *none = NULL;
	void *p;

	if (fd < 0)
		return fd;
	err = need_room(fd);
	if (!err) {
		p = vm_own_map(sizeof(*hint), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		err = vm_sys_err(p);
		if (!err && !__atomic_compare_exchange_n(&hint, &none, p, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			(void)vm_sys->munmap(p, sizeof(*hint)); /* another thread was first */
	}
	(void)vm_sys->close(fd); /* it is mapped */
	return err;
}

void pol_hint_open(void)
{
	char why[512];
	int dirfd;

	if (__atomic_load_n(&hint, __ATOMIC_ACQUIRE) ||
	    pol_runtime_dir_open(pol_config_get()->runtime_dir, true, &dirfd, why, sizeof(why)))
		return;
	(void)map_it(dirfd);	   /* then nobody is found before a mapping */
	(void)vm_sys->close(dirfd); /* only looked at */
}

uint64_t pol_hint_mask(void)
{
	const struct hint *h = __atomic_load_n(&hint, __ATOMIC_ACQUIRE);

	return h ? __atomic_load_n(&h->mask, __ATOMIC_ACQUIRE) : 0;
}

bool pol_hint_maybe(dev_t dev, ino_t ino)
{
	struct hint *h = __atomic_load_n(&hint, __ATOMIC_ACQUIRE);

	return h && __atomic_load_n(count_of(h, dev, ino), __ATOMIC_ACQUIRE);
}

/* Down to nothing and not below: registries that were counted in a file that was removed are none of this
 * one's. */
#define ADD(n, by)                                                                                           \
	({                                                                                                   \
		__typeof__(*(n)) was = __atomic_load_n(n, __ATOMIC_RELAXED);                                 \
		while ((was || (by) > 0) && !__atomic_compare_exchange_n(n, &was, (__typeof__(*(n)))(was + (by)), false, \
									 __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) \
			;                                                                                    \
	})

void pol_hint_count(dev_t dev, ino_t ino, int by)
{
	struct hint *h = __atomic_load_n(&hint, __ATOMIC_ACQUIRE);
	uint64_t class = pol_inode_class(ino);
	uint32_t *n;

	if (!h)
		return;
	n = &h->nmask[__builtin_ctzll(class)];
	ADD(count_of(h, dev, ino), by);
	ADD(n, by);
	if (!__atomic_load_n(n, __ATOMIC_SEQ_CST))
		__atomic_and_fetch(&h->mask, ~class, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(n, __ATOMIC_SEQ_CST)) /* also what another one counted meanwhile */
		__atomic_or_fetch(&h->mask, class, __ATOMIC_SEQ_CST);
}

bool pol_hint_sweep_is_due(unsigned sec)
{
	struct hint *h = __atomic_load_n(&hint, __ATOMIC_ACQUIRE);
	uint64_t now = pol_now_usec(CLOCK_BOOTTIME) / 1000000, last;

	if (!h)
		return false;
	last = __atomic_load_n(&h->swept_sec, __ATOMIC_RELAXED);
	return (!last || now < last || now - last >= sec) && /* before: the file is older than the machine's start */
	       __atomic_compare_exchange_n(&h->swept_sec, &last, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
