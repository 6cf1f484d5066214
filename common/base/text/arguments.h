/* arguments.h -- the command line of a daemon as a table of options. */
#ifndef GP_ARGUMENTS_H
#define GP_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { GP_ARGUMENTS_MAX = 32 }; /* options in a table */

typedef enum gp_argument_type {
    GP_ARGUMENT_FLAG,   /* a bool, set by the option alone */
    GP_ARGUMENT_TEXT,   /* a const char *, which points into the command line */
    GP_ARGUMENT_NUMBER, /* an integer of 4 or 8 bytes */
} gp_argument_type;

typedef struct gp_argument {
    const char *name; /* without "--"; NULL ends the table */
    gp_argument_type type;
    size_t offset, bytes; /* of the value in the caller's struct */
    int64_t min, max;     /* inclusive range of a NUMBER */
    bool automatic;       /* NUMBER: "auto" sets it to 0 */
} gp_argument;

/* Name, type, offset and bytes of a gp_argument. */
#define GP_FLAG(option, struct_type, field)   GP_ARGUMENT(option, GP_ARGUMENT_FLAG, struct_type, field)
#define GP_TEXT(option, struct_type, field)   GP_ARGUMENT(option, GP_ARGUMENT_TEXT, struct_type, field)
#define GP_NUMBER(option, struct_type, field) GP_ARGUMENT(option, GP_ARGUMENT_NUMBER, struct_type, field)
#define GP_ARGUMENT(option, kind, struct_type, field)                                                        \
    .name = option, .type = kind, .offset = offsetof(struct_type, field),                                    \
    .bytes = sizeof(((struct_type *)0)->field)

/* Set the values that the command line names; the others keep what they have. GP_EINVAL: an unknown option, a number out
 * of its range, or words that belong to no option. The rest of the command line is read after an error, too; the first
 * error is returned. */
gp_status gp_arguments_parse(const gp_argument *table, void *values, int count, char **words, gp_error *err);

#endif
