/* Match classes in the data with a model's outputs.
 *
 * Classes are matched by name, in any order. Without names, the name of output k is the number k.
 * If an output for a class of the data is missing, and either side has no names but the numbers 0,
 * 1, 2 ..., label k belongs to output k. */
#ifndef GP_CLASS_MATCH_H
#define GP_CLASS_MATCH_H

#include "common/base/text/json.h"
#include "common/data/store/store.h"

/* Class for unlabelled samples, in stores that require a class. */
#define GP_CLASS_NONE "(none)"

/* Find the model output for each class in the data.
 *   numbers    [info->class_count]: set to the outputs, below count
 *   by_number  set to true if the data has class names and the outputs have none; may be NULL
 *   empty      [info->class_count]: true for classes without samples; these need no output and
 *              may get -1. NULL: unknown
 *   names      output names; NULL: none
 *   count      output count
 * GP_EINVAL: the data has a class that no output has, or the match is ambiguous; the message lists
 * both sides. */
gp_status gp_class_match(int32_t *numbers, bool *by_number, const gp_store_info *info, const bool *empty,
                         const char *const *names, uint32_t count, gp_error *err);

/* Class names of a model, for use in store options. All zero: no names. */
typedef struct gp_class_list {
    gp_json *document;
    const char **names; /* [count]; the strings belong to `document` */
    uint32_t count;
} gp_class_list;

/* Read class names from JSON text. json NULL: an empty list. GP_EINVAL: not an array with 1 to
 * GP_STORE_CLASSES_MAX elements. Release with gp_class_list_deinit(). */
gp_status gp_class_list_read(gp_class_list *out, const char *json, size_t bytes, gp_error *err);
void gp_class_list_deinit(gp_class_list *list);

/* Return whether both lists have the same names, in any order. */
bool gp_class_names_equal(const char *const *a, uint32_t a_count, const char *const *b, uint32_t b_count);

/* Format the names missing from `but`, at most LISTED of them: "cat, dog and 3 others". but NULL:
 * all names. Return `text`. */
char *gp_class_names_format(char *text, size_t bytes, const char *const *names, uint32_t count,
                            const char *const *but, uint32_t but_count);

#endif
