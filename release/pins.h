/*
 * Included before every C file of `make release`, so that the program starts wherever glibc is 2.17 or newer (RHEL 7).
 * glibc 2.32 and 2.34 gave these functions new versions when they moved into libc, and a linker takes the newest it
 * sees. Each is still there in its first version, which is named here; TestDist finds what a newer glibc adds.
 * An old sysroot would do as well, but would have to be fetched and kept.
 */
#ifndef __ASSEMBLER__
#ifdef __x86_64__
#define FIRST "GLIBC_2.2.5"
#define FIRST_DLINFO "GLIBC_2.3.3"
#else
#define FIRST "GLIBC_2.17"
#define FIRST_DLINFO FIRST
#endif
#define PIN(name, version) __asm__(".symver " name "," name "@" version)
PIN("dlopen", FIRST);
PIN("dlsym", FIRST);
PIN("dlclose", FIRST);
PIN("dlerror", FIRST);
PIN("dlinfo", FIRST_DLINFO);
PIN("pthread_create", FIRST);
PIN("pthread_attr_getstack", FIRST);
PIN("pthread_attr_getstacksize", FIRST);
PIN("pthread_getattr_np", FIRST);
PIN("pthread_key_create", FIRST);
PIN("pthread_setspecific", FIRST);
PIN("pthread_sigmask", FIRST);

/*
 * The C library's start code calls this one, which no pin reaches; --wrap sends the call here. On a glibc before 2.34
 * no constructor of the program runs then; TestDist sees to it that there is none.
 */
int first_libc_start_main(int (*)(int, char **, char **), int, char **,
	void (*)(void), void (*)(void), void (*)(void), void *);
__asm__(".symver first_libc_start_main,__libc_start_main@" FIRST);
__attribute__((weak)) int __wrap___libc_start_main(int (*main)(int, char **, char **), int argc, char **argv,
	void (*init)(void), void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
	return first_libc_start_main(main, argc, argv, init, fini, rtld_fini, stack_end);
}
#endif
