/* class_match.h -- which output of a model is which class of the data.
 *
 * Classes are matched by name where both sides have names, whatever their order. Names that only count ("0", "1", ...)
 * are no names: then label k belongs to output k. */
#ifndef GP_CLASS_MATCH_H
#define GP_CLASS_MATCH_H

#include "common/base/text/json.h"
#include "common/data/store/store.h"

/* The class of samples without labels, in stores that must have one. */
#define GP_CLASS_NONE "(none)"

/* gp_class_match -- find the output of each class of the data.
 *   numbers    [info->class_count] receives the outputs, below count
 *   by_number  set to true if the data have names and the outputs have none; may be NULL
 *   empty      [info->class_count]: classes without samples, which need no output and get -1; NULL: none are known
 *   names      of the outputs; NULL: they have none
 *   count      outputs
 * GP_EINVAL: the data have a class that no output has, or the outputs cannot be told apart; both sides are listed. */
gp_status gp_class_match(int32_t *numbers, bool *by_number, const gp_store_info *info, const bool *empty,
                         const char *const *names, uint32_t count, gp_error *err);

/* Class names of a model, as store options. All zero: none. */
typedef struct gp_class_list {
    gp_json *document;
    const char **names; /* [count], in the document */
    uint32_t count;
} gp_class_list;

/* gp_class_list_read -- read a JSON array of texts. json NULL: an empty list.
 * GP_EINVAL: not an array of 1 to GP_STORE_CLASSES_MAX elements. Release with gp_class_list_deinit(). */
gp_status gp_class_list_read(gp_class_list *out, const char *json, size_t bytes, gp_error *err);
void gp_class_list_deinit(gp_class_list *list);

/* Return whether both lists have the same names, in any order. */
bool gp_class_names_equal(const char *const *a, uint32_t a_count, const char *const *b, uint32_t b_count);

/* Format the names that are not in `but`, at most LISTED of them: "cat, dog and 3 others". but NULL: all. Returns text. */
char *gp_class_names_format(char *text, size_t bytes, const char *const *names, uint32_t count,
                            const char *const *but, uint32_t but_count);

#endif
