/* SPDX-License-Identifier: MIT */
/* One overlay per file for all processes of a user: who has it, and its descriptors from one to the other. */
#ifndef POL_SHARE_H
#define POL_SHARE_H

#include "managed_priv.h"

/* ---- share.c ---- */

/* A handle on m: what another process has, if one has it, else a new one, which others are given from now on. */
int pol_share_open(struct pol_file *m, const char *arg, struct vm_fileh **ret_h);
/* Nobody had it, and yet somebody has its journal: a child, perhaps, that could not enter itself before its
 * parent was killed, or one that is about to end. Has one come, or gone? asked: so many times. */
bool pol_share_comes_late(const struct pol_file *m, unsigned asked);
/* vm_fileh_close of m's handle, which nobody is given any more. */
int pol_share_close(struct pol_file *m, struct vm_fileh *h);
/* Does some live process of this user have the file? */
bool pol_share_has_somebody(dev_t dev, ino_t ino);
/* fd is of m, which is not live here and may be so in another process: then it becomes so here, too, and what
 * is done by fd agrees with the mappings there. Is m live now? When it cannot be, that is logged, and the
 * call goes to the file. */
bool pol_share_join(struct pol_file *m, int fd);
/* The journal of f, from who has it open: at *home, adopted. -ENOENT: nobody gave it. No lock held. */
int pol_share_fetch_journal(const struct vm_bigfile *f, int *home);
/* In a forked child: it has what its parent has, and says so. */
void pol_share_fork_child(void);
/* Those that others do not find yet are entered where they look. Have all been? */
bool pol_share_enter_late(void);
/* Before the process ends: what it has it has no more. */
void pol_share_stop(void);

/* ---- share_registry.c: a file in the runtime directory, for each managed file: the processes that have it
 * ---- */

#define POL_REGISTRY_MAX (VM_MAX_OTHERS + 1)
struct pol_registry {
	int dirfd; /* of the runtime directory */
	char name[64];
	dev_t dev;
	ino_t ino;
	unsigned nbefore; /* entries when it was locked */
	int32_t pids[POL_REGISTRY_MAX]; /* negative: it was entered by another one, and may not listen yet */
	unsigned n;
};
/* From here to unlock no other process, and no other thread of this one, looks or changes. msec: how long it
 * is waited for,
 * -EBUSY. */
int pol_registry_lock(dev_t dev, ino_t ino, unsigned msec, struct pol_registry *ret);
void pol_registry_add(struct pol_registry *r, int32_t pid);
void pol_registry_remove(struct pol_registry *r, int32_t pid);
/* If the process is no more it is taken out, and the sockets that it left go. Was it so? */
bool pol_registry_forget(struct pol_registry *r, int32_t pid);
/* What r holds is what others find. An error: they find what they found before. */
int pol_registry_write(struct pol_registry *r);
void pol_registry_unlock(struct pol_registry *r);
/* To look only, without a lock. -ENOENT: nobody was ever there. */
int pol_registry_read(dev_t dev, ino_t ino, struct pol_registry *ret);
void pol_registry_close(struct pol_registry *r);
void pol_registry_fork_child(void);
/* When all who are in it are no more it goes. */
void pol_registry_sweep(dev_t dev, ino_t ino);

/* ---- share_hint.c: could there be a registry? A look into memory ---- */

void pol_hint_open(void);
/* Of the classes of inodes (pol_inode_class), those that some file may be of which others have live. */
uint64_t pol_hint_mask(void);
bool pol_hint_maybe(dev_t dev, ino_t ino);
void pol_hint_count(dev_t dev, ino_t ino, int by);
/* Is nobody at it, and was nobody within so many seconds? Then the caller is. */
bool pol_hint_sweep_is_due(unsigned sec);

/* ---- share_sweep.c ---- */

/* Take away what processes that were killed left in the runtime directory, if nobody did so a moment ago. */
void pol_sweep(void);

/* ---- share_socket.c: PID.share in the runtime directory ---- */

enum pol_share_what { POL_SHARE_NOTHING, POL_SHARE_HANDLE, POL_SHARE_JOURNAL };
#define POL_SHARE_NFDS VM_SHARE_NFDS /* most that are given */

/* Be there for others; nothing to do when it is so. bind is the first half: they can connect, and wait. */
int pol_share_listen(void);
int pol_share_bind(void);
bool pol_share_listens(void);
void pol_share_listen_fork_child(void);
void pol_share_listen_end(void);
/* Ask process pid: 1: here they are, close-on-exec, and the caller's to close; 0: it does not have the file,
 * or is gone; -errno: it lives and gave no answer that means anything (-ETIMEDOUT, -EPROTO), or its own
 * error. what: NOTHING asks only whether somebody is there. */
int pol_share_ask(int dirfd, int32_t pid, dev_t dev, ino_t ino, enum pol_share_what what, int *ret_fds);
/* What others are given; pol_lock held. *ret_n descriptors, which stay ours. -ENOENT: we do not have it. */
int pol_share_give(dev_t dev, ino_t ino, enum pol_share_what what, int *ret_fds, unsigned *ret_n);

#endif
