/* Errors: a status code for the program and an error message for the user.
 *
 * The function that detects an error writes the message: the cause, the value seen, and a remedy.
 * Callers pass the message on unchanged. All gradpool functions set their outputs only on
 * success. */
#ifndef GP_ERROR_H
#define GP_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/* Public interface of the library. */
#pragma GCC visibility push(default)

/* Status codes; status.def lists them with their numbers. */
typedef enum gp_status {
#define X(code, number, text) code = number,
#include "status.def"
#undef X
} gp_status;

#define GP_ERROR_MESSAGE_MAX 480

/* Error value, declared on the caller's stack: it needs no allocation, so it works out of memory,
 * and it can be copied into a reply. */
typedef struct gp_error {
    gp_status code;
    /* UTF-8, NUL-terminated, a single line; a longer text is cut and ends with "..." */
    char message[GP_ERROR_MESSAGE_MAX];
} gp_error;

/* Fill in *err (may be NULL) and return `code`. A failure is then one line:
 *   return gp_fail(err, GP_EINVAL, "batch size is %d; it must be at least 1", n); */
gp_status(gp_fail)(gp_error *err, gp_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Like gp_fail() for a failed system call: append ": " and the text for errno. ENOMEM replaces
 * `code` by GP_ENOMEM; EMFILE and ENFILE (no free descriptor) replace it by GP_ELIMIT. */
gp_status(gp_fail_errno)(gp_error *err, gp_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Return `code`. The gp_fail() macro uses this function so that the compiler sees the constant, and
 * therefore does not warn about outputs that are only set on success. */
static inline gp_status gp_status_same(gp_status code, gp_status returned)
{
    (void)returned;
    return code;
}

/* Return `returned`, which is never GP_OK: gp_fail_errno() can replace the code, but it always
 * fails. */
static inline gp_status gp_status_failed(gp_status returned)
{
    if (returned == GP_OK)
        __builtin_unreachable();
    return returned;
}
#define gp_fail(err, code, ...)       gp_status_same((code), (gp_fail)((err), (code), __VA_ARGS__))
#define gp_fail_errno(err, code, ...) gp_status_failed((gp_fail_errno)((err), (code), __VA_ARGS__))

/* Put "prefix: " in front of the message in *err (may be NULL), for example a file name or a
 * worker. */
void gp_error_prefix(gp_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Return a constant description of a code, such as "no usable device". For numbers that are not in
 * status.def: "unknown status". */
const char *gp_status_text(gp_status code);

/* Return the symbolic name of a code, such as "GP_ENODEV". For numbers that are not in status.def:
 * "GP_UNKNOWN". */
const char *gp_status_name(gp_status code);

/* Return whether status.def has this number. Check every code received over the network with this
 * function before converting it to gp_status. */
int gp_status_known(long number);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
