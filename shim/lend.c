/* SPDX-License-Identifier: MIT */
#include "real.h"
#include "lend.h"

void *shim_lend(struct shim_loan *loan, const void *p, size_t len, enum shim_lend how, size_t unit, void *stack)
{
	int saved = errno;
	void *ours = stack;

	if (loan->n == SHIM_LOAN_MAX || !shim_touch(p, len, how != SHIM_READS))
		return (void *)p;
	if (!ours)
		ours = shim_real.mmap(NULL, len, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ours == MAP_FAILED || (how != SHIM_FILLS_BY && !shim_copy(ours, p, len))) {
		if (!stack && ours != MAP_FAILED)
			(void)shim_real.munmap(ours, len);
		errno = saved;
		return (void *)p; /* it was touched just now, and mostly that will do */
	}
	loan->lent[loan->n++] = (struct shim_lent){
		.prog = (char *)p,
		.ours = ours,
		.len = len,
		.unit = unit,
		.goes_back = how != SHIM_READS,
		.is_mapped = !stack,
	};
	errno = saved;
	return ours;
}

char *shim_lend_string(const char *s, char *stack)
{
	size_t n = SHIM_STRING_MAX;

	stack[n] = '\0';
	if (shim_copy_string(stack, n, s))
		return stack;
	return shim_touch(s, n, false) ? stack : (char *)s; /* too long; or not readable */
}

void shim_loan_drop(void *arg)
{
	struct shim_loan *loan = arg;
	unsigned i;

	for (i = 0; i < loan->n; i++)
		if (loan->lent[i].is_mapped)
			(void)shim_real.munmap(loan->lent[i].ours, loan->lent[i].len);
}

void shim_loan_end(struct shim_loan *loan, long ret)
{
	int saved = errno;
	unsigned i;

	for (i = 0; i < loan->n; i++) {
		struct shim_lent *l = &loan->lent[i];
		size_t len = l->len;

		if (l->unit)
			len = ret <= 0 ? 0 : (size_t)ret < len / l->unit ? (size_t)ret * l->unit : len;
		if (l->goes_back) /* false: another thread took the page away while the call lasted */
			(void)shim_copy(l->prog, l->ours, len);
	}
	shim_loan_drop(loan);
	errno = saved;
}
