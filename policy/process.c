/* SPDX-License-Identifier: MIT */
/* The process: start, fork, faults. */
#include "managed_priv.h"
#include "log.h"
#include "share.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

static const struct pol_config *config;

const struct pol_config *pol_config_get(void)
{
	return config;
}

/* Before main: one line, and the process ends. No exit handler of the program has anything to do yet. */
_Noreturn static void refuse_to_run(const char *text)
{
	char line[600];
	int n = snprintf(line, sizeof(line), "txmap: %s\n", text);

	(void)vm_sys->write(2, line, n < (int)sizeof(line) ? (size_t)n : sizeof(line) - 1);
	vm_sys->exit_group(EX_CONFIG);
	__builtin_unreachable();
}

int pol_start(void)
{
	char err[512];
	const char *why;

	if (config)
		return config->nrules > 0;
	if (pol_config_load(environ, NULL, &config, err, sizeof(err)))
		refuse_to_run(err);
	if (!config->nrules)
		return 0;
	pol_log_open(config->log, config->log_file);
	/* it is started with the first file only: a process that maps none pays nothing */
	if (config->engine != VM_ENGINE_AUTO && vm_probe((enum vm_engine)config->engine)) {
		(void)vm_engine(&why);
		(void)snprintf(err, sizeof(err), "engine = %s: not available here: %s", config->process.text[POL_OPT_engine],
			       why ? why : "it failed");
		refuse_to_run(err);
	}
	return 1;
}

int pol_engine_start(void)
{
	const char *why;
	int err;

	pol_lock();
	if (vm_engine(NULL) != VM_ENGINE_AUTO) {
		pol_unlock();
		return 0;
	}
	pol_log_need_file();
	err = vm_start((enum vm_engine)config->engine);
	pol_unlock();
	if (err) { /* it was there at start: privileges were given up since */
		(void)vm_engine(&why);
		pol_log(POL_LOG_ERROR, "engine = %s: not available any more: %s", config->process.text[POL_OPT_engine],
			why ? why : "it failed");
		return err;
	}
	if (vm_engine(&why) == VM_ENGINE_SEGV && config->engine == VM_ENGINE_AUTO)
		pol_log(POL_LOG_WARN, "engine segv is in use: %s ('txmap doctor' tells what would help)", why);
	else
		pol_log(POL_LOG_INFO, "engine %s%s%s", vm_engine(NULL) == VM_ENGINE_UFFD ? "uffd" : "segv", why ? ": " : "",
			why ? why : "");
	return 0;
}

void pol_warn(const char *object, const char *text)
{
	pol_log(POL_LOG_WARN, "%s: %s", object, text);
}

#define THAW_MSEC 100

void pol_fork_prepare(void)
{
	/* with the lock: so the threads that commit all the time come to wait, and let the fork by */
	for (pol_lock(); vm_fork_prepare(THAW_MSEC); pol_lock()) {
		pol_unlock(); /* but one may need it before it thaws what it froze */
		vm_fork_wait();
	}
}

void pol_fork_parent(void)
{
	vm_fork_parent();
	pol_unlock();
}

void pol_fork_child(void)
{
	enum vm_engine was = vm_engine(NULL);
	int err = vm_fork_child();
	const char *why;

	pol_lock_fork_child();
	pol_files_lose();
	pol_control_fork_child();
	pol_share_fork_child();
	if (vm_engine(&why) != was)
		pol_log(POL_LOG_INFO, "forked child: engine segv is in use: %s", why);
	if (err)
		pol_log(POL_LOG_ERROR, "forked child: managed mappings could not be armed (%s); those are gone from it",
			pol_errno_name(err));
	if (pol_has_live())
		pol_sweep(); /* children before it that began another program left the names of their sockets */
}

struct lost_page {
	void *addr;
	int err;
};

static void tell_lost_page(struct vm_fileh *h, void *arg)
{
	const struct lost_page *lost = arg;
	struct pol_file *m = pol_file_of_handle(h);

	pol_log(POL_LOG_ERROR, "%s: the page at %p cannot be loaded: %s", m ? m->path : "?", lost->addr,
		pol_errno_name(lost->err));
	if (m)
		pol_file_put(m);
}

int pol_fault(const siginfo_t *info, void *ucontext)
{
	int err = vm_fault(info, ucontext);

	if (err < 0 && err != -ENXIO)
		vm_for_each_mapped(info->si_addr, 1, tell_lost_page, &(struct lost_page){info->si_addr, err});
	return err;
}

void pol_crash(const siginfo_t *info, void *ucontext)
{
	pol_log(POL_LOG_ERROR, "BUG: signal %d at %p inside txmap", info->si_signo, info->si_addr);
	vm_backtrace(ucontext);
}

bool pol_fd_is_ours(int fd)
{
	return vm_fd_is_ours(fd);
}

int pol_fd_make_room(int fd)
{
	return vm_fd_move(fd);
}

long pol_syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	return vm_sys_raw(nr, a, b, c, d, e, f);
}
