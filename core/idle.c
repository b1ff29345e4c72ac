/* SPDX-License-Identifier: MIT */
/*
 * Need the others be asked? To wake a process and wait for its answer takes half as long as a small commit;
 * most of the time it sleeps, and has nothing to tell. The kernel says so:
 *
 *	it had one thread that could store, and n page faults, when its last harvest began	peer->nthreads, nfaults
 *	it has as many threads and faults now, and sleeps					/proc/PID/stat
 *
 * A store to what that harvest protected needs a fault, which the kernel counts before the thread goes on: so
 * there was none up to now. With more threads one could store where the fault of another has been served, but
 * not counted yet.
 */
#include "internal.h"

static bool is_peer(const struct vm_fileh *h, int32_t pid)
{
	for (unsigned i = 0; i < VM_MAX_PEERS; i++)
		if (h->ctl->peers[i].pid == pid)
			return true;
	return false;
}

static void forget(struct vm_watched *w)
{
	if (w->pid)
		vm_fd_drop(&w->fd);
	w->pid = 0;
}

static struct vm_watched *watch(struct vm_fileh *h, int32_t pid)
{
	struct vm_watched *free = NULL;

	for (struct vm_watched *w = h->watched; w < h->watched + VM_MAX_WATCHED; w++) {
		if (w->pid == pid)
			return w;
		if (!w->pid || !is_peer(h, w->pid))
			free = w;
	}
	if (!free)
		return NULL;
	forget(free);
	free->fd = vm_process_open_stat(pid);
	if (free->fd < 0 || vm_fd_adopt(&free->fd))
		return NULL;
	free->pid = pid;
	return free;
}

static bool is_idle(struct vm_fileh *h, const struct vm_peer *peer)
{
	struct vm_watched *w = peer->nfaults && peer->started ? watch(h, peer->pid) : NULL;
	char text[VM_STAT_LEN];
	const char *p = w ? vm_process_read_stat(w->fd, text) : NULL;

	/* another process of that number has started at another time; a descriptor of one that ended reads
	 * nothing */
	if (w && (!p || vm_process_field(p, VM_STAT_STARTED) != peer->started)) {
		forget(w);
		return false;
	}
	return p && (*p == 'S' || *p == 'T') && vm_process_field(p, VM_STAT_THREADS) == peer->nthreads &&
	       vm_process_field(p, VM_STAT_MINFLT) + vm_process_field(p, VM_STAT_MAJFLT) == peer->nfaults;
}

bool vm_others_are_idle(struct vm_fileh *h)
{
	for (unsigned i = 0; i < VM_MAX_PEERS; i++) {
		const struct vm_peer *p = &h->ctl->peers[i];

		if (p->pid && i != h->peer && p->serves != VM_SERVES_NOT_YET && !is_idle(h, p))
			return false;
	}
	return true;
}

void vm_idle_fini(struct vm_fileh *h)
{
	for (struct vm_watched *w = h->watched; w < h->watched + VM_MAX_WATCHED; w++)
		forget(w);
}
