#include "common/data/store/class_match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"

/* Limits for the class lists in error messages: names, bytes per name, bytes in total. */
enum { LISTED = 4, NAME_BYTES = 20, LIST_BYTES = 160 };

static bool names_are_numbers(const char *const *names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        char number[16];

        snprintf(number, sizeof(number), "%u", i);
        if (strcmp(names[i], number) != 0)
            return false;
    }
    return true;
}

/* Return a name's index; -1: not found. Try index `near` first, the usual match. */
static int32_t name_find(const char *const *names, uint32_t count, const char *name, uint32_t near)
{
    if (near < count && strcmp(names[near], name) == 0)
        return (int32_t)near;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return (int32_t)i;
    return -1;
}

/* Return the output with a name; without names, the name of output k is the number k. -1: not
 * found. */
static int32_t output_find(const char *const *names, uint32_t count, const char *name, uint32_t near)
{
    const unsigned long number = strtoul(name, NULL, 10);
    char text[24];

    if (names != NULL)
        return name_find(names, count, name, near);
    snprintf(text, sizeof(text), "%lu", number);
    return number < count && strcmp(text, name) == 0 ? (int32_t)number : -1;
}

bool gp_class_names_equal(const char *const *a, uint32_t a_count, const char *const *b, uint32_t b_count)
{
    for (uint32_t i = 0; a_count == b_count && i < a_count; i++)
        if (name_find(b, b_count, a[i], i) < 0)
            return false;
    return a_count == b_count;
}

char *gp_class_names_format(char *text, size_t bytes, const char *const *names, uint32_t count,
                            const char *const *but, uint32_t but_count)
{
    uint32_t total = 0, listed = 0;
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        if (but != NULL && name_find(but, but_count, names[i], i) >= 0)
            continue;
        total++;
        if (listed == LISTED || used + NAME_BYTES + sizeof(" and 65536 others") > bytes)
            continue;
        listed++;
        used += (size_t)snprintf(text + used, bytes - used, "%s%.*s", listed == 1 ? "" : ", ", NAME_BYTES,
                                 names[i]);
    }
    if (total > listed && used < bytes)
        snprintf(text + used, bytes - used, " and %u other%s", total - listed,
                 total - listed == 1 ? "" : "s");
    return text;
}

gp_status gp_class_match(int32_t *numbers, bool *by_number, const gp_store_info *info, const bool *empty,
                         const char *const *names, uint32_t count, gp_error *err)
{
    const bool unnamed = names == NULL || names_are_numbers(names, count);
    const bool unlabelled = info->class_count == 1 && strcmp(info->class_names[0], GP_CLASS_NONE) == 0;
    char unknown[LIST_BYTES], known[LIST_BYTES];
    bool found = true;

    if (by_number != NULL)
        *by_number = false;
    for (uint32_t i = 0; i < info->class_count; i++)
        numbers[i] = (int32_t)i;
    if (unlabelled)
        return GP_OK;

    /* Names count even if they are numbers, because these can have another order: that of the
     * folders 0 to 10 is 0, 1, 10, 2. */
    for (uint32_t i = 0; i < info->class_count && found; i++) {
        numbers[i] = output_find(names, count, info->class_names[i], i);
        found = numbers[i] >= 0 || (empty != NULL && empty[i]);
    }
    if (found)
        return GP_OK;
    for (uint32_t i = 0; i < info->class_count; i++)
        numbers[i] = (int32_t)i;
    if (names_are_numbers(info->class_names, info->class_count))
        return info->class_count <= count ? GP_OK
                                          : gp_fail(err, GP_EINVAL,
                                                    "the labels of %.100s range from 0 to %u, but the model "
                                                    "has %u classes; use data with labels below %u",
                                                    info->source, info->class_count - 1, count, count);
    if (!unnamed)
        return gp_fail(err, GP_EINVAL,
                       "%.80s has classes that the model lacks: %s; the model has %s; use data with these "
                       "classes only (folders, or a list FILE.csv), train a new classifier (train "
                       "--pretrained MODEL --classes auto), or ignore the labels (predict --ignore-labels)",
                       info->source,
                       gp_class_names_format(unknown, sizeof(unknown), info->class_names, info->class_count,
                                             names, count),
                       gp_class_names_format(known, sizeof(known), names, count, NULL, 0));
    if (info->class_count != count) /* the outputs have no names, and their count differs */
        return gp_fail(
            err, GP_EINVAL,
            "%.100s has %u classes (%s) and the model %u outputs without names, so they cannot be matched; "
            "name the outputs (model edit MODEL --class-names A,B,... -o OUT.onnx), or ignore the labels "
            "(predict --ignore-labels)",
            info->source, info->class_count,
            gp_class_names_format(known, sizeof(known), info->class_names, info->class_count, NULL, 0),
            count);
    if (by_number != NULL)
        *by_number = true;
    return GP_OK;
}

gp_status gp_class_list_read(gp_class_list *out, const char *json, size_t bytes, gp_error *err)
{
    gp_class_list list = { 0 };

    *out = list;
    if (json == NULL)
        return GP_OK;
    gp_status status = gp_json_parse(&list.document, json, bytes, err);

    if (status != GP_OK)
        return status;
    const size_t count = gp_json_is_array(list.document) ? gp_json_count(list.document) : 0;

    if (count < 1 || count > GP_STORE_CLASSES_MAX)
        status = gp_fail(err, GP_EINVAL, "class names must be a list of 1 to %d texts, but it has %zu",
                         GP_STORE_CLASSES_MAX, count);
    else if ((list.names = gp_calloc(count, sizeof(*list.names))) == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for %zu class names", count);
    for (size_t i = 0; status == GP_OK && i < count; i++)
        list.names[i] = gp_json_text(gp_json_element(list.document, i), "");
    list.count = (uint32_t)count;
    if (status == GP_OK)
        *out = list;
    else
        gp_class_list_deinit(&list);
    return status;
}

void gp_class_list_deinit(gp_class_list *list)
{
    gp_free(list->names);
    gp_json_free(list->document);
    *list = (gp_class_list){ 0 };
}
