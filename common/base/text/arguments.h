/* Parse a daemon's command line, described as an option table. */
#ifndef GP_ARGUMENTS_H
#define GP_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { GP_ARGUMENTS_MAX = 32 }; /* maximum options in a table */

typedef enum gp_argument_type {
    GP_ARGUMENT_FLAG,   /* bool, set to true; the option takes no argument */
    GP_ARGUMENT_TEXT,   /* const char *, points into the command line */
    GP_ARGUMENT_NUMBER, /* integer of 4 or 8 bytes */
} gp_argument_type;

/* One daemon option. */
typedef struct gp_argument {
    const char *name; /* without "--"; NULL ends the table */
    gp_argument_type type;
    size_t offset, bytes; /* value position and size in the caller's struct */
    int64_t min, max;     /* NUMBER: allowed range, inclusive */
    bool automatic;       /* NUMBER: accept "auto", which sets 0 */
} gp_argument;

/* Initialize a gp_argument's name, type, offset and bytes from a struct field. */
#define GP_FLAG(option, struct_type, field)   GP_ARGUMENT(option, GP_ARGUMENT_FLAG, struct_type, field)
#define GP_TEXT(option, struct_type, field)   GP_ARGUMENT(option, GP_ARGUMENT_TEXT, struct_type, field)
#define GP_NUMBER(option, struct_type, field) GP_ARGUMENT(option, GP_ARGUMENT_NUMBER, struct_type, field)
#define GP_ARGUMENT(option, kind, struct_type, field)                                                        \
    .name = option, .type = kind, .offset = offsetof(struct_type, field),                                    \
    .bytes = sizeof(((struct_type *)0)->field)

/* Parse a command line. Values whose options are not given keep their content. Parsing continues
 * after an error, so all valid options are set; the first error is returned.
 *   table   options, terminated by a NULL name
 *   values  caller's struct
 *   count   word count, including the program name
 *   words   command line; getopt_long() may reorder it
 * GP_EINVAL: unknown option, number out of range, or words that belong to no option. */
gp_status gp_arguments_parse(const gp_argument *table, void *values, int count, char **words, gp_error *err);

#endif
