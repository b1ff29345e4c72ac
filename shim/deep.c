/* SPDX-License-Identifier: MIT */
/*
 * Libraries loaded with RTLD_DEEPBIND, as PHP loads its extensions, find libc's functions before ours. Once
 * they are there, what they found in libc, and would have found in us without that flag, becomes ours: their
 * other symbols stay.
 */
#include "real.h"
#include "enter.h"
#include "load.h"
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/syscall.h>
#include <string.h>

#if defined(__x86_64__)
#define IS_OF_FUNCTION(type)                                                                                 \
	((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64)
#elif defined(__aarch64__)
#define IS_OF_FUNCTION(type)                                                                                 \
	((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64)
#else
#error "the relocations of this machine"
#endif

struct object {
	const struct link_map *map;
	void *handle; /* of what was loaded with it */
	const ElfW(Sym) * symbols;
	const char *names;
	uintptr_t start, stop;
	uintptr_t sealed_start, sealed_stop; /* GNU_RELRO: read-only by now */
};

/* libc relocates the dynamic section's pointers in place. */
static uintptr_t pointer_in(const struct link_map *map, const ElfW(Dyn) * d)
{
	return d->d_un.d_ptr < map->l_addr ? map->l_addr + d->d_un.d_ptr : d->d_un.d_ptr;
}

static bool is_sealed(const struct object *o, uintptr_t slot)
{
	return o->sealed_start <= slot && slot < o->sealed_stop;
}

static long protect_slot(uintptr_t slot, int prot)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = slot / page * page;

	return pol_syscall(__NR_mprotect, (long)start, (long)(slot + sizeof(slot) - start), prot, 0, 0, 0);
}

static void set_slot(const struct object *o, uintptr_t *slot, uintptr_t value)
{
	bool sealed = is_sealed(o, (uintptr_t)slot);

	if (sealed && protect_slot((uintptr_t)slot, PROT_READ | PROT_WRITE))
		return; /* a filter: it stays libc's */
	__atomic_store_n(slot, value, __ATOMIC_RELEASE);
	if (sealed)
		(void)protect_slot((uintptr_t)slot, PROT_READ); /* as it was */
}

/* Bound to libc, or to be when it is called: then it leads back into the object. */
static bool is_libcs(const struct object *o, uintptr_t value, const char *name)
{
	return shim_is_in_libc((void *)value) ||
	       (o->start <= value && value < o->stop && shim_is_in_libc(dlsym(o->handle, name)));
}

static void redirect(const struct object *o, const ElfW(Rela) * rel, size_t size)
{
	for (const ElfW(Rela) *end = rel + size / sizeof(*rel); rel < end; rel++) {
		const ElfW(Sym) *sym = &o->symbols[ELF64_R_SYM(rel->r_info)];
		uintptr_t *slot = (uintptr_t *)(o->map->l_addr + rel->r_offset);
		void *ours;

		if (!IS_OF_FUNCTION(ELF64_R_TYPE(rel->r_info)) || rel->r_addend ||
		    sym->st_shndx != SHN_UNDEF || !sym->st_name)
			continue;
		ours = dlsym(RTLD_DEFAULT, o->names + sym->st_name);
		if (shim_is_in_us(ours) && is_libcs(o, *slot, o->names + sym->st_name))
			set_slot(o, slot, (uintptr_t)ours);
	}
}

static int find_parts(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct object *o = arg;

	(void)size;
	if (info->dlpi_addr != o->map->l_addr)
		return 0;
	o->start = info->dlpi_addr;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr,
			  stop = start + info->dlpi_phdr[i].p_memsz;

		if (info->dlpi_phdr[i].p_type == PT_LOAD && stop > o->stop)
			o->stop = stop;
		if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO) {
			o->sealed_start = start;
			o->sealed_stop = stop;
		}
	}
	return 1;
}

static void redirect_object(void *handle, const struct link_map *map)
{
	struct object o = {.map = map, .handle = handle};
	const ElfW(Rela) *rela = NULL, *plt = NULL;
	size_t rela_size = 0, plt_size = 0;

	for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
		switch (d->d_tag) {
		case DT_SYMTAB:
			o.symbols = (const ElfW(Sym) *)pointer_in(map, d);
			break;
		case DT_STRTAB:
			o.names = (const char *)pointer_in(map, d);
			break;
		case DT_RELA:
			rela = (const ElfW(Rela) *)pointer_in(map, d);
			break;
		case DT_RELASZ:
			rela_size = d->d_un.d_val;
			break;
		case DT_JMPREL:
			plt = (const ElfW(Rela) *)pointer_in(map, d);
			break;
		case DT_PLTRELSZ:
			plt_size = d->d_un.d_val;
			break;
		}
	}
	if (!o.symbols || !o.names)
		return;
	(void)dl_iterate_phdr(find_parts, &o);
	redirect(&o, rela, rela_size);
	redirect(&o, plt, plt_size);
}

void shim_redirect_deep(void *handle)
{
	/* what came with it was loaded after it; who was there before has ours, or was redirected */
	for (const struct link_map *map = handle; map; map = map->l_next)
		redirect_object(handle, map);
}
