/* Tables of named parameters. Parsing, range checks, defaults, help texts, JSON and listings of
 * layer kinds, training options and command lines all use these tables.
 *
 * A table is an array of gp_param, terminated by { 0 }. The values are in the caller's plain
 * struct, each at the offset given in the table. */
#ifndef GP_PARAMS_H
#define GP_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"
#include "common/base/error.h"
#include "common/base/text/json.h"

/* Parameter types, with the value's C type. */
typedef enum gp_param_type {
    GP_PARAM_NONE, /* ends a table */
    GP_PARAM_BOOL, /* bool; "true|false|yes|no|on|off|1|0"; a flag without a value: true */
    GP_PARAM_I64,  /* int64_t[count] */
    GP_PARAM_F64,  /* double[count]; NaN and infinity are rejected */
    GP_PARAM_WORD, /* int: index into `words` */
    GP_PARAM_TEXT, /* char[count], NUL-terminated */
} gp_param_type;

/* One parameter. */
typedef struct gp_param {
    const char *name;  /* "learn-rate-drop-factor" */
    const char *alias; /* common short name ("lr"); NULL: none */
    gp_param_type type;
    size_t offset;  /* offset within the caller's struct */
    uint32_t count; /* element count (0 means 1); TEXT: bytes including the NUL */
    /* Default of BOOL, I64, F64 (all elements) and WORD (an index). If min >= 0, -1 means "auto":
     * the program chooses the value unless the user sets it. */
    double fallback;
    const char *fallback_text; /* default of TEXT; NULL: "" */
    double min, max;           /* allowed range for I64 and F64, inclusive */
    const char *const *words;  /* allowed values for WORD, NULL-terminated */
    const char *seed_name;     /* name in MATLAB; NULL: none */
    const char *torch_name;    /* name in PyTorch; NULL: none */
    const char *unit;          /* "epochs", "samples"; NULL: none */
    const char *placeholder;   /* value name in --help, "FILE"; NULL: derived from type and name */
    bool repeats;              /* TEXT: gp_params_set() appends each value as one line, separated by '\n' */
    /* shown by --help; in tables with basic options, --help-all shows the others */
    bool basic;
    const char *help; /* description, one line */
} gp_param;

/* Initialize a table entry's type, offset and count from a struct field, so that table and struct
 * cannot differ. The field's C type determines the parameter type: bool, int64_t, double, int (a
 * WORD) and char[] (a TEXT). Arrays of int64_t and double are lists. */
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

/* Set all values to the defaults of the table. */
void gp_params_default(const gp_param *table, void *values);

/* Find a parameter by name or alias; '_' equals '-'. NULL: not found. */
const gp_param *gp_params_find(const gp_param *table, const char *name);

/* Find a parameter by the name used in MATLAB or PyTorch: compare with each word in seed_name and
 * torch_name, and ignore case, '-' and '_'. NULL: not found. */
const gp_param *gp_params_find_synonym(const gp_param *table, const char *name);

/* Fail with GP_EINVAL for a name that is not in the table. The message suggests the nearest name:
 * "unknown option 'lern-rate'; did you mean 'learn-rate'?" */
gp_status gp_params_unknown(const gp_param *table, const char *name, gp_error *err);

/* Set a value from text. Lists are written as "2,2"; a single number sets all list elements.
 * GP_EINVAL: wrong type, out of range, or not an allowed word; the value does not change.
 * GP_ELIMIT: the text is too long. */
gp_status gp_params_set(const gp_param *param, void *values, const char *text, gp_error *err);

/* Set a value from JSON: a number, a string, true, false, or a list with numbers. Errors as for
 * gp_params_set(). */
gp_status gp_params_set_json(const gp_param *param, void *values, const gp_json *value, gp_error *err);

/* Set all values named in a JSON object. Other values do not change. GP_EINVAL: a name is not in
 * the table (the message suggests the nearest one), or a value is invalid. */
gp_status gp_params_from_json(const gp_param *table, void *values, const gp_json *object, gp_error *err);

/* Write values as members into the JSON object that is open in `writer`. Automatic values are
 * omitted.
 *   changed_only  omit values that equal the default */
void gp_params_to_json(const gp_param *table, const void *values, bool changed_only, gp_json_writer *writer);

/* Write a value ("0.1", "2,2", "piecewise", "auto") into text, and return text. */
char *gp_params_format(const gp_param *param, const void *values, char *text, size_t bytes);

/* Return whether a value differs from the default. */
bool gp_params_changed(const gp_param *param, const void *values);

#endif
