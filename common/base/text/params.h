/* params.h -- a table of named parameters: parsing, ranges, defaults, help, JSON and listings all read it.
 *
 * A table is an array of gp_param ended by { 0 }; values live in a plain struct of the caller, each at
 * its offset.  Layer kinds, training options and command lines are such tables. */
#ifndef GP_PARAMS_H
#define GP_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"
#include "common/base/error.h"
#include "common/base/text/json.h"

typedef enum gp_param_type {
    GP_PARAM_NONE, /* ends a table */
    GP_PARAM_BOOL, /* bool; "true|false|yes|no|1|0"; as a flag: present = true */
    GP_PARAM_I64,  /* int64_t[count] */
    GP_PARAM_F64,  /* double[count]; never NaN or infinite */
    GP_PARAM_WORD, /* int: the index of one of `words` */
    GP_PARAM_TEXT, /* char[count], NUL-terminated */
} gp_param_type;

typedef struct gp_param {
    const char *name;  /* "learn-rate-drop-factor" */
    const char *alias; /* the field's other name ("lr"), or NULL */
    gp_param_type type;
    size_t offset;  /* of the value in the caller's struct */
    uint32_t count; /* elements (0 means 1); for TEXT, bytes with the NUL */
    /* Default of BOOL, I64, F64 (every element) and WORD (an index).  -1 where min is 0 or more
     * is "auto": others decide the value unless it is given. */
    double fallback;
    const char *fallback_text; /* default of TEXT; NULL = "" */
    double min, max;           /* inclusive range of I64 and F64 */
    const char *const *words;  /* of WORD, NULL-terminated */
    const char *seed_name;     /* what MATLAB calls it, or NULL */
    const char *torch_name;    /* what PyTorch calls it, or NULL */
    const char *unit;          /* "epochs", "samples", or NULL */
    const char *placeholder; /* what stands for the value in help, "FILE"; NULL: derived from type and name */
    bool basic;       /* shown by --help; other options of a table that has basic ones: by --help-all */
    const char *help; /* one line */
} gp_param;

/* Set type, offset and count of an entry from the declaration of a struct's field, so that they cannot differ:
 * bool, int64_t, double, int (a WORD) and char[] (a TEXT); arrays of int64_t and double are lists. */
#define GP_PARAM_FIELD(struct_type, field)                                                                   \
    .type = GP_PARAM_TYPE_OF(((struct_type *)0)->field), .offset = offsetof(struct_type, field),             \
    .count = sizeof(((struct_type *)0)->field) / GP_PARAM_BYTES_OF(((struct_type *)0)->field)
#define GP_PARAM_TYPE_OF(value)                                                                              \
    _Generic((value), bool                                                                                   \
             : GP_PARAM_BOOL, int                                                                            \
             : GP_PARAM_WORD, int64_t                                                                        \
             : GP_PARAM_I64, int64_t *                                                                       \
             : GP_PARAM_I64, double                                                                          \
             : GP_PARAM_F64, double *                                                                        \
             : GP_PARAM_F64, char *                                                                          \
             : GP_PARAM_TEXT)
#define GP_PARAM_BYTES_OF(value)                                                                             \
    sizeof(_Generic((value), int64_t * : (int64_t)0, double * : (double)0, char * : (char)0, default : (value)))

/* Fill values with the defaults of the table. */
void gp_params_default(const gp_param *table, void *values);

/* The parameter of that name or alias ('_' equals '-'), or NULL. */
const gp_param *gp_params_find(const gp_param *table, const char *name);

/* Find the entry that MATLAB or PyTorch calls `name`: any word of seed_name or torch_name, whatever its case, '-' and
 * '_'. NULL: none. */
const gp_param *gp_params_find_synonym(const gp_param *table, const char *name);

/* GP_EINVAL "unknown option 'lern-rate'; did you mean 'learn-rate'?" for a name that is not in the table. */
gp_status gp_params_unknown(const gp_param *table, const char *name, gp_error *err);

/* Set one value from text; lists are "2,2", and one number given for a list fills it.
 * GP_EINVAL: not of the type, not in the range, not one of the words; the value is unchanged then. */
gp_status gp_params_set(const gp_param *param, void *values, const char *text, gp_error *err);

/* Set one value from JSON: a number, a text, true or false, or a list of numbers. */
gp_status gp_params_set_json(const gp_param *param, void *values, const gp_json *value, gp_error *err);

/* Set all values named in a JSON object; names that are not in the table are GP_EINVAL with the
 * nearest name.  Values not named keep what they had. */
gp_status gp_params_from_json(const gp_param *table, void *values, const gp_json *object, gp_error *err);

/* Write the values as members of the object that `writer` is in: all, or only those that differ from
 * the default. */
void gp_params_to_json(const gp_param *table, const void *values, bool changed_only, gp_json_writer *writer);

/* The value as text ("0.1", "2,2", "piecewise") into text, which is returned. */
char *gp_params_format(const gp_param *param, const void *values, char *text, size_t bytes);

/* Whether the value is not the default. */
bool gp_params_changed(const gp_param *param, const void *values);

#endif
