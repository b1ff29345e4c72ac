/* SPDX-License-Identifier: MIT */
/*
 * What processes that were killed left in the runtime directory: their sockets, and registries that nobody is
 * in any more. Whoever meets such a thing takes it away; but one of a file that is never used again, nobody
 * meets. So now and then a process that starts looks through all of it.
 */
#define _GNU_SOURCE 1
#include "backends.h"
#include "control_priv.h"
#include "share.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#define EVERY_SEC 60

static void look_at(int dirfd, const char *name)
{
	unsigned long long dev, ino;
	char *end;
	long pid;

	if (sscanf(name, "share-%llx-%llx", &dev, &ino) == 2) {
		pol_registry_sweep((dev_t)dev, (ino_t)ino);
		return;
	}
	if (sscanf(name, "snapshots-%llx-%llx", &dev, &ino) == 2) {
		pol_snapshot_sweep((dev_t)dev, (ino_t)ino);
		return;
	}
	if (sscanf(name, "group-%llx-%llx", &dev, &ino) == 2) {
		pol_group_sweep((dev_t)dev, (ino_t)ino);
		return;
	}
	pid = strtol(name, &end, 10);
	if (pid > 0 && pid <= INT32_MAX && (!strcmp(end, ".sock") || !strcmp(end, ".share")))
		(void)pol_socket_forget(dirfd, (pid_t)pid);
}

void pol_sweep(void)
{
	char why[512], buf[4096] __attribute__((aligned(8)));
	struct dirent64 *d;
	int dirfd;
	long n;

	if (!pol_hint_sweep_is_due(EVERY_SEC) ||
	    pol_runtime_dir_open(pol_config_get()->runtime_dir, false, &dirfd, why, sizeof(why)))
		return;
	while ((n = vm_sys_raw(SYS_getdents64, dirfd, (long)buf, sizeof(buf), 0, 0, 0)) > 0)
		for (long pos = 0; pos < n; pos += d->d_reclen) {
			d = (struct dirent64 *)(buf + pos);
			look_at(dirfd, d->d_name);
		}
	(void)vm_sys->close(dirfd); /* only looked at */
}
