/* heap.h -- how much memory a decoder takes at most, of its own and through libraries: P15 asks for 64 MiB or less.
 *
 * malloc() and its kin of the whole process come before the C library's, and anonymous mappings; with a sanitizer, which has its own, nothing
 * is counted. */
#ifndef GP_TEST_FUZZ_HEAP_H
#define GP_TEST_FUZZ_HEAP_H

#include <stddef.h>
#include <stdint.h>

#if defined(__has_feature) /* clang's way to say it */
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

/* From now on: forget the most, begin at what is live. */
void heap_begin(void);
/* The most that was live at once since then, less what was live at its beginning; bytes. */
int64_t heap_most(void);

#endif
