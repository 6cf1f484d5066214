/* error.h -- a code for the program, a sentence for the person.
 *
 * The first function that knows what went wrong writes the message: cause, value seen, what to try.
 * Those above pass it on unchanged.  Outputs are set only on success. */
#ifndef GP_ERROR_H
#define GP_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default) /* these are part of the library's interface */

typedef enum gp_status {
#define X(code, number, text) code = number,
#include "status.def"
#undef X
} gp_status;

#define GP_ERROR_MESSAGE_MAX 480

/* A plain value on the caller's stack: works when memory is out, copies into a reply. */
typedef struct gp_error {
    gp_status code;
    char message[GP_ERROR_MESSAGE_MAX]; /* UTF-8, NUL-terminated, one line, cut with "..." if longer */
} gp_error;

/* gp_fail -- fill *err (may be NULL) and return code, so a failing line reads
 * `return gp_fail(err, GP_EINVAL, "batch size is %d; it must be at least 1", n);` */
gp_status(gp_fail)(gp_error *err, gp_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* gp_fail_errno -- the same for a failed system call: appends ": " and the text of errno.  Whatever failed for want of
 * memory is GP_ENOMEM, for want of descriptors GP_ELIMIT. */
gp_status(gp_fail_errno)(gp_error *err, gp_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The compiler sees that what comes back is `code`: so it knows, where that is a constant, that outputs are not used. */
static inline gp_status gp_status_same(gp_status code, gp_status returned)
{
    (void)returned;
    return code;
}
static inline gp_status gp_status_failed(gp_status returned)
{
    if (returned == GP_OK)
        __builtin_unreachable();
    return returned;
}
#define gp_fail(err, code, ...)       gp_status_same((code), (gp_fail)((err), (code), __VA_ARGS__))
#define gp_fail_errno(err, code, ...) gp_status_failed((gp_fail_errno)((err), (code), __VA_ARGS__))

/* gp_error_prefix -- put "prefix: " before a message that is already there (a file name, a worker). */
void gp_error_prefix(gp_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The static text of a code ("no usable device"); "unknown status" for a number not in the table. */
const char *gp_status_text(gp_status code);

/* The symbolic name of a code ("GP_ENODEV"). */
const char *gp_status_name(gp_status code);

/* Whether number is in the table: a code that came over the wire must be checked by this. */
int gp_status_known(long number);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
