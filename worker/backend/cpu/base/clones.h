/* Function attributes that compile plain loops for several instruction sets. */
#ifndef GP_CPU_CLONES_H
#define GP_CPU_CLONES_H

/* Compile a function for AVX-512, AVX2 and the baseline; the program selects one when it starts.
 * Sanitizers cannot instrument the selection code. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LOOP_CLONES __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define LOOP_CLONES
#endif
#define LOOP_INLINE static inline __attribute__((always_inline))

#endif
