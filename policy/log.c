/* SPDX-License-Identifier: MIT */
/* Messages for humans. */
#include "log.h"
#include "vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_LEN 1024

static enum pol_log_level level_now = POL_LOG_WARN;
static int log_fd = -1;	 /* the log file (adopted), or -1: stderr */
static const char *to_open; /* the log file, as long as nothing was said (atomic) */
static dev_t stderr_dev; /* what stderr was at start */
static ino_t stderr_ino;

/* Is descriptor 2 still a place for messages? A program may have closed it and got 2 for a database or a
 * connection: a line of ours in there would destroy data. */
static bool stderr_is_for_messages(void)
{
	struct stat st;
	int flags;

	if (vm_sys->fstat(STDERR_FILENO, &st))
		return false;
	if (stderr_ino && st.st_dev == stderr_dev && st.st_ino == stderr_ino)
		return true;
	if (S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode))
		return true;
	flags = vm_sys->fcntl(STDERR_FILENO, F_GETFL, 0);
	return S_ISREG(st.st_mode) && flags >= 0 && (flags & O_ACCMODE) == O_WRONLY;
}

void pol_log_open(enum pol_log_level level, const char *file)
{
	struct stat st;

	level_now = level;
	if (!vm_sys->fstat(STDERR_FILENO, &st)) {
		stderr_dev = st.st_dev;
		stderr_ino = st.st_ino;
	}
	if (log_fd >= 0)
		vm_fd_drop(&log_fd);
	__atomic_store_n(&to_open, level == POL_LOG_OFF ? NULL : file, __ATOMIC_RELEASE);
}

void pol_log_need_file(void)
{
	const char *file = __atomic_load_n(&to_open, __ATOMIC_ACQUIRE);
	int fd, err = 0;

	/* another thread's line at this very moment goes to stderr */
	if (!file || !__atomic_exchange_n(&to_open, NULL, __ATOMIC_ACQ_REL))
		return;
	fd = vm_sys->openat(AT_FDCWD, file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
	if (fd < 0) {
		err = fd;
	} else {
		log_fd = fd;
		err = vm_fd_adopt(&log_fd);
		if (err)
			log_fd = -1;
	}
	if (err)
		pol_log(POL_LOG_WARN, "log_file=%s cannot be opened (%s): messages go to stderr", file,
			pol_errno_name(err));
}

void pol_log_set_level(enum pol_log_level level)
{
	__atomic_store_n(&level_now, level, __ATOMIC_RELAXED);
}

bool pol_log_is_on(enum pol_log_level level)
{
	return level != POL_LOG_OFF && level <= __atomic_load_n(&level_now, __ATOMIC_RELAXED);
}

void pol_log(enum pol_log_level level, const char *fmt, ...)
{
	static const char *const names[] = {"", "error", "warning", "info", "debug"};
	int saved = errno, fd;
	char line[LINE_MAX_LEN];
	size_t len;
	va_list ap;

	if (!pol_log_is_on(level))
		return;
	pol_log_need_file();
	fd = log_fd;
	len = (size_t)snprintf(line, sizeof(line), "txmap[%d]: %s: ", vm_sys->getpid(), names[level]);
	va_start(ap, fmt);
	(void)vsnprintf(line + len, sizeof(line) - len, fmt, ap); /* a longer line is cut */
	va_end(ap);
	len += strlen(line + len);
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	}
	if (len == sizeof(line) - 1)
		len--;
	line[len++] = '\n';
	if (fd < 0)
		fd = stderr_is_for_messages() ? STDERR_FILENO : -1;
	if (fd >= 0)
		(void)vm_sys->write(fd, line, len); /* there is nobody left to tell */
	errno = saved;
}

const char *pol_errno_name(int err)
{
	const char *name = strerrorname_np(err < 0 ? -err : err);

	return name ? name : "unknown error";
}

bool pol_log_is_file(const struct stat *st)
{
	struct stat log;

	pol_log_need_file();
	return log_fd >= 0 && !vm_sys->fstat(log_fd, &log) && log.st_ino == st->st_ino && log.st_dev == st->st_dev;
}
