/* heap.h: peak memory of a decoder, including libraries; the limit (P15) is 64 MiB.
 *
 * malloc() and related functions of the whole process are interposed, and so are anonymous
 * mappings. Under a sanitizer, which interposes its own, nothing is counted. */
#ifndef GP_TEST_FUZZ_HEAP_H
#define GP_TEST_FUZZ_HEAP_H

#include <stddef.h>
#include <stdint.h>

#if defined(__has_feature) /* for clang */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define GP_HEAP_COUNTED 0
#endif
#endif
#if defined(GP_HEAP_COUNTED)
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__SANITIZE_MEMORY__)
#define GP_HEAP_COUNTED 0
#else
#define GP_HEAP_COUNTED 1
#endif

/* Start a measurement at the current usage. */
void heap_begin(void);

/* Return the peak usage since heap_begin(), less the usage at that time; bytes. */
int64_t heap_most(void);

#endif
