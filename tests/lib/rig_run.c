/* SPDX-License-Identifier: MIT */
/* Running tests on a rig: handles that are closed after each test, touches, forks, both engines. */
#include "rig.h"
#include "faulty_sys.h"
#include "rig_file.h"
#include <sys/prctl.h>

/* What a test opened and mapped. */
#define MAX_OPEN 64
static struct rig_file *files[MAX_OPEN];
static struct vm_fileh *handles[MAX_OPEN];

#define PUT(array, what)                                                                                     \
	do {                                                                                                 \
		unsigned i_ = 0;                                                                             \
		while ((array)[i_])                                                                          \
			assert_true(++i_ < MAX_OPEN);                                                        \
		(array)[i_] = (what);                                                                        \
	} while (0)

/* ---- sanitizers: faults are ours ---- */

__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0:handle_segv=0:handle_sigbus=0:allow_user_segv_handler=1";
}

__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "handle_segv=0:handle_sigbus=0:allow_user_segv_handler=1:die_after_fork=0:halt_on_error=1";
}

bool rig_is_tsan(void)
{
#if defined(__SANITIZE_THREAD__)
	return true; /* gcc */
#elif defined(__has_feature) /* clang */
	return __has_feature(thread_sanitizer);
#else
	return false;
#endif
}

bool rig_is_asan(void)
{
#if defined(__SANITIZE_ADDRESS__)
	return true; /* gcc */
#elif defined(__has_feature) /* clang */
	return __has_feature(address_sanitizer);
#else
	return false;
#endif
}

/* ---- touches ---- */

static __thread sigjmp_buf *volatile catcher;

static void on_fault(int sig, siginfo_t *info, void *ucontext)
{
	int saved = errno, err = vm_fault(info, ucontext);

	errno = saved;
	if (err == 1)
		return;
	if (catcher)
		siglongjmp(*catcher, err < 0 ? SIGBUS : sig);
	(void)fprintf(stderr, "rig: signal %d at %p, vm_fault says %d\n", sig, info->si_addr, err);
	vm_backtrace(ucontext);
	(void)signal(sig, SIG_DFL);
}

static void catch_faults(void)
{
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};

	(void)sigaction(SIGSEGV, &sa, NULL);
	(void)sigaction(SIGBUS, &sa, NULL);
}

int rig_touch(volatile char *p)
{
	sigjmp_buf here;
	int sig = sigsetjmp(here, 1);

	if (!sig) {
		catcher = &here;
		(void)rig_load8((char *)p);
	}
	catcher = NULL;
	return sig;
}

int rig_store(volatile char *p, char byte)
{
	sigjmp_buf here;
	int sig = sigsetjmp(here, 1);

	if (!sig) {
		catcher = &here;
		rig_store8((char *)p, byte);
	}
	catcher = NULL;
	return sig;
}

/* ---- handles and mappings ---- */

struct vm_fileh *rig_handle(struct rig_file *f, enum vm_load load)
{
	struct vm_fileh *h;

	assert_int_equal(vm_fileh_open(&f->file, NULL, load, &h), 0);
	PUT(handles, h);
	return h;
}

struct vm_fileh *rig_keep(struct rig_file *f, enum vm_load load)
{
	PUT(files, f);
	return rig_handle(f, load);
}

static void keep(struct rig *r, struct rig_file *f)
{
	r->f = f;
	r->h = rig_keep(f, r->load);
}

void rig_open(struct rig *r, uint64_t size)
{
	keep(r, rig_file_make(size));
}

void rig_open_sparse(struct rig *r, uint64_t size)
{
	keep(r, rig_file_make_sparse(size));
}

int rig_close(struct vm_fileh *h)
{
	for (unsigned i = 0; i < MAX_OPEN; i++)
		if (handles[i] == h)
			handles[i] = NULL;
	return vm_fileh_close(h);
}

void rig_abandon(struct rig *r)
{
	for (unsigned i = 0; i < MAX_OPEN; i++)
		if (handles[i] == r->h)
			handles[i] = NULL;
	vm_lock(&vm_map_lock); /* the handle's server lives */
	for (size_t i = vm_nvmas; i-- > 0;)
		if (vm_vmas[i]->fileh == r->h)
			vm_vma_remove(vm_vmas[i]);
	for (struct vm_fileh **pp = &vm_filehs; *pp; pp = &(*pp)->next)
		if (*pp == r->h) {
			*pp = r->h->next;
			break;
		}
	vm_unlock(&vm_map_lock);
}

void rig_forget(struct rig_file *f)
{
	for (unsigned i = 0; i < MAX_OPEN; i++)
		if (files[i] == f)
			files[i] = NULL;
	rig_file_free(f);
}

char *rig_map_with(struct vm_fileh *h, uint64_t pgoff, uint64_t npages, int prot, int flags)
{
	void *p;

	assert_int_equal(vm_map(h, NULL, npages * VM_PAGE, prot, flags, pgoff * VM_PAGE, true, &p), 0);
	return p;
}

char *rig_map(struct vm_fileh *h, uint64_t pgoff, uint64_t npages)
{
	return rig_map_with(h, pgoff, npages, PROT_READ | PROT_WRITE, MAP_SHARED);
}

void rig_unmap(void *p, uint64_t npages)
{
	assert_int_equal(vm_unmap(p, npages * VM_PAGE), 0);
}

/* The next test may fork: a helper that has only just ended may be inside of gcc's AddressSanitizer still, whose
 * locks the child would have for ever. */
static void await_helpers(void)
{
#ifdef __SANITIZE_ADDRESS__
	uint64_t until = vm_deadline(1000); /* a thread that a failed test left stays */

	while (!vm_process_has_one_thread() && !vm_is_past(until))
		(void)sched_yield();
#endif
}

/* Whatever the test left, also when it failed half way. */
static int clean(void **state)
{
	(void)state;
	(void)faulty_disarm();
	while (vm_nvmas)
		if (vm_unmap((void *)vm_vmas[0]->start, vm_vmas[0]->stop - vm_vmas[0]->start))
			abort();
	for (unsigned i = 0; i < MAX_OPEN; i++) {
		if (handles[i])
			(void)vm_fileh_close(handles[i]);
		handles[i] = NULL;
	}
	await_helpers();
	for (unsigned i = 0; i < MAX_OPEN; i++) {
		if (files[i])
			rig_file_free(files[i]);
		files[i] = NULL;
	}
	return 0;
}

/* ---- short forms ---- */

int rig_try_commit(struct vm_fileh *h)
{
	struct vm_commit_result res;

	return vm_fileh_commit(h, true, false, &res);
}

uint64_t rig_commit(struct vm_fileh *h)
{
	struct vm_commit_result res;

	assert_int_equal(vm_fileh_commit(h, true, false, &res), 0);
	return res.npages;
}

uint64_t rig_ndirty(struct vm_fileh *h)
{
	struct vm_fileh_stat st;

	vm_fileh_stat(h, true, &st);
	return st.npages_dirty;
}

uint64_t rig_nresident(struct vm_fileh *h)
{
	struct vm_fileh_stat st;

	vm_fileh_stat(h, false, &st);
	return st.npages_resident;
}

void rig_invalidate(struct vm_fileh *h, uint64_t pgoff, uint64_t npages)
{
	assert_int_equal(vm_fileh_invalidate(h, pgoff * VM_PAGE, npages * VM_PAGE, VM_DIRTY_DROP, NULL), 0);
}

void rig_discard(struct vm_fileh *h)
{
	assert_int_equal(vm_fileh_discard(h), 0);
}

void rig_resize(struct vm_fileh *h, uint64_t size)
{
	assert_int_equal(vm_fileh_resize(h, size), 0);
}

ssize_t rig_read(struct vm_fileh *h, void *buf, size_t len, uint64_t off)
{
	struct iovec iov = {buf, len};

	return vm_fileh_read(h, &iov, 1, off);
}

ssize_t rig_write(struct vm_fileh *h, const void *buf, size_t len, uint64_t off)
{
	struct iovec iov = {(void *)buf, len};

	return vm_fileh_write(h, &iov, 1, off, NULL);
}

pid_t rig_fork(void)
{
	return rig_fork_late(NULL);
}

pid_t rig_fork_late(void (*before)(void))
{
	pid_t pid;

	(void)vm_fork_prepare(VM_FOREVER); /* cannot fail */
	pid = fork();
	if (pid) {
		vm_fork_parent();
		assert_true(pid > 0);
		return pid;
	}
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that hangs is killed whole */
	if (before)
		before();
	if (vm_fork_child())
		_exit(99);
	return 0;
}

int rig_reap(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

bool rig_is_uffd(void)
{
	return vm_engine(NULL) == VM_ENGINE_UFFD;
}

bool rig_is_lazy(struct rig *r)
{
	return r->load == VM_LOAD_LAZY;
}

void rig_need_lazy(void)
{
	if (!rig_is_uffd() || vm_can_load_lazily())
		return;
	print_message("uffd/lazy: userfaultfd is for user mode only here\n");
	skip();
}

uint64_t rig_status_kib(const char *key)
{
	char line[256];
	uint64_t kib = 0;
	FILE *s = fopen("/proc/self/status", "re");

	assert_non_null(s);
	while (fgets(line, sizeof(line), s))
		if (!strncmp(line, key, strlen(key)))
			kib = strtoull(line + strlen(key), NULL, 10);
	(void)fclose(s);
	return kib;
}

/* ---- running ---- */

static void run(void **state)
{
	const struct rig_case *c = *state;
	struct rig r = {.load = c->load};

	catch_faults(); /* cmocka puts handlers of its own before each test */
	if (c->load == VM_LOAD_LAZY)
		rig_need_lazy();
	c->fn(&r);
	(void)faulty_disarm();
	vm_check();
}

static int run_engine(const char *name, const struct rig_case *cases, size_t n, const char *filter)
{
	enum vm_engine engine = strcmp(name, "uffd") ? VM_ENGINE_SEGV : VM_ENGINE_UFFD;
	struct CMUnitTest *tests = calloc(n, sizeof(*tests));
	int err = vm_start(engine);

	if (err) {
		(void)printf("engine %s does not work here: %s\n", name, strerror(-err));
		return 77;
	}
	for (size_t i = 0; i < n; i++)
		tests[i] = (struct CMUnitTest){cases[i].name, run, NULL, clean, (void *)&cases[i]};
	if (filter)
		cmocka_set_test_filter(filter);
	err = _cmocka_run_group_tests(name, tests, n, NULL, NULL);
	free(tests);
	return err ? 1 : 0;
}

int rig_main(int argc, char **argv, const struct rig_case *cases, size_t n)
{
	static const char *const engines[] = {"uffd", "segv"};
	const char *engine = getenv("RIG_ENGINE");
	int failed = 0, ran = 0;

	if (engine)
		return run_engine(engine, cases, n, argc > 1 ? argv[1] : NULL);
	for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++) {
		pid_t pid;
		int status;

		(void)fflush(NULL);
		pid = fork();
		if (!pid) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			(void)setenv("RIG_ENGINE", engines[i], 1);
			(void)execv("/proc/self/exe", argv);
			_exit(127);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			return 1;
		if (!WIFEXITED(status))
			(void)printf("engine %s: killed by signal %d\n", engines[i], WTERMSIG(status));
		failed += !WIFEXITED(status) || (WEXITSTATUS(status) && WEXITSTATUS(status) != 77);
		ran += WIFEXITED(status) && WEXITSTATUS(status) != 77;
	}
	return failed ? 1 : ran ? 0 : 77;
}
