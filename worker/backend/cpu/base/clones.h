/* clones.h -- how plain loops become code for several instruction sets. */
#ifndef GP_CPU_CLONES_H
#define GP_CPU_CLONES_H

/* A function per instruction set, chosen when the program starts.  Sanitizers cannot instrument the choice. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LOOP_CLONES __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define LOOP_CLONES
#endif
#define LOOP_INLINE static inline __attribute__((always_inline))

#endif
