/* Resources of workers and needs of leases and calls: a bounded table of names with whole numbers,
 * written as "gpu_memory=80,license=1". "license" alone means "license=1".
 *
 * A worker meets a need if it has at least that amount. Nothing is subtracted while a call runs:
 * a worker runs one call at a time. */
#ifndef GP_RESOURCES_H
#define GP_RESOURCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum {
    GP_RESOURCES_MAX = 16,           /* resources in a table */
    GP_RESOURCE_NAME_BYTES = 64,     /* with the terminating NUL */
    GP_RESOURCES_BYTES = 512,        /* text of a table, with the terminating NUL */
    GP_RESOURCE_SETTING_BYTES = 1024 /* text for gp_resources_assign(), with the terminating NUL */
};
#define GP_RESOURCE_AMOUNT_MAX (UINT64_C(1) << 53)

typedef struct gp_resource {
    char name[GP_RESOURCE_NAME_BYTES]; /* a letter or _, then letters, digits, '_', '.', '-' */
    uint64_t amount;
} gp_resource;

/* Resources sorted by name. Unused entries are zero and there is no padding, so that tables can be
 * compared with memcmp(). */
typedef struct gp_resource_table {
    uint64_t count;
    gp_resource at[GP_RESOURCES_MAX];
} gp_resource_table;

/* Parse "NAME[=N][,NAME[=N]]...". NULL or "": an empty table.
 *   GP_EINVAL: malformed name or number, or a name that occurs twice
 *   GP_ELIMIT: too many resources, or a text of GP_RESOURCES_BYTES or more */
gp_status gp_resources_parse(gp_resource_table *out, const char *text, gp_error *err);

/* Write a table as text that gp_resources_parse() accepts. Return text. */
char *gp_resources_text(const gp_resource_table *table, char text[GP_RESOURCES_BYTES]);

/* Add the amounts of another table where they are larger. GP_ELIMIT: the result exceeds a ceiling;
 * *table is then incomplete. */
gp_status gp_resources_merge(gp_resource_table *table, const gp_resource_table *more, gp_error *err);

/* Return whether a worker with the resources `has` meets all needs. */
bool gp_resources_meet(const gp_resource_table *has, const gp_resource_table *needs);

/* Set the resources of `count` workers from the setting of a pool: groups separated by white space.
 *
 *     [WORKERS:]NAME[=N][,NAME[=N]]...
 *
 * WORKERS is a list of worker numbers from 1, such as 1,3-4. A group without it applies to all
 * workers. A later group overrides the amounts of earlier ones. "none" means no resources.
 *   tables  [count] set completely; unchanged on an error
 *   stride  bytes from one table to the next
 *   strict  refuse worker numbers above `count`; false: ignore them
 * GP_EINVAL, GP_ELIMIT: as gp_resources_parse(), or an invalid worker number. */
gp_status gp_resources_assign(gp_resource_table *tables, size_t stride, uint32_t count, const char *setting,
                              bool strict, gp_error *err);

/* Write the resources of workers 1 to `count` for a message: "workers 1-2: license=1; worker 3:
 * none". If the text does not fit, it ends with "...". Return `out`.
 *   texts  [count] as gp_resources_text() writes them */
char *gp_resources_describe(char *out, size_t bytes, const char *const *texts, uint32_t count);

#endif
