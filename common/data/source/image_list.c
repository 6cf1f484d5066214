/* Build image lists, and look up their names and classes. */
#include "common/data/source/image_list.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/hash.h"
#include "common/base/text/log.h"
#include "common/data/source/objects.h"

void gp_image_list_init(gp_image_list *list)
{
    memset(list, 0, sizeof(*list));
    gp_buffer_init(&list->text, GP_IMAGE_NAMES_BYTES_MAX - 1);
}

void gp_image_list_deinit(gp_image_list *list)
{
    gp_objects_close(list->objects); /* first, because the prefetch threads read the list */
    gp_free(list->entries);
    gp_free(list->labels);
    gp_free(list->offsets);
    gp_free(list->sizes);
    gp_free(list->root);
    gp_free(list->places);
    gp_free(list->classes);
    gp_free(list->slots);
    gp_free(list->stamps);
    gp_free(list->left_out_first);
    gp_buffer_deinit(&list->text);
}

/* Make room for one more item behind `count`. */
static gp_status array_grow(void **items, uint32_t count, size_t bytes, gp_error *err)
{
    void *grown = gp_array_grow(*items, count, bytes);

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a list of %u names", count + 1);
    *items = grown;
    return GP_OK;
}

static gp_status text_add(gp_image_list *list, const char *text, uint64_t *at, gp_error *err)
{
    size_t bytes = strlen(text) + 1;

    if (bytes > GP_IMAGE_NAME_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "the name %.80s... has more than %d bytes", text,
                       GP_IMAGE_NAME_BYTES_MAX - 1);
    *at = list->text.bytes;
    return gp_buffer_append(&list->text, text, bytes, err);
}

gp_status gp_image_list_add_place(gp_image_list *list, const char *path, uint32_t *place, gp_error *err)
{
    gp_status status;

    if (list->place_count == GP_IMAGE_PLACES_MAX)
        return gp_fail(err, GP_ELIMIT, "%s has more than %d directories", path, GP_IMAGE_PLACES_MAX);
    status = array_grow((void **)&list->places, list->place_count, sizeof(*list->places), err);
    if (status == GP_OK)
        status = text_add(list, path, &list->places[list->place_count], err);
    if (status == GP_OK)
        *place = list->place_count++;
    return status;
}

gp_status gp_image_list_add_class(gp_image_list *list, const char *name, gp_error *err)
{
    gp_status status;

    if (list->class_count == GP_STORE_CLASSES_MAX)
        return gp_fail(err, GP_ELIMIT, "more than %d classes; the last is %s", GP_STORE_CLASSES_MAX, name);
    status = array_grow((void **)&list->classes, list->class_count, sizeof(*list->classes), err);
    if (status == GP_OK)
        status = text_add(list, name, &list->classes[list->class_count], err);
    if (status == GP_OK)
        list->class_count++;
    return status;
}

gp_status gp_image_list_add_stamp(gp_image_list *list, const char *path, const struct stat *stat,
                                  gp_error *err)
{
    uint64_t at;
    gp_status status = array_grow((void **)&list->stamps, list->stamp_count, sizeof(*list->stamps), err);

    if (status == GP_OK)
        status = text_add(list, path, &at, err);
    if (status == GP_OK)
        list->stamps[list->stamp_count++] = (gp_image_stamp){
            .path = at,
            .device = stat->st_dev,
            .inode = stat->st_ino,
            .changed_ns = stat->st_mtim.tv_sec * 1000000000ll + stat->st_mtim.tv_nsec,
        };
    return status;
}

gp_status gp_image_list_add(gp_image_list *list, uint32_t place, const char *name, int32_t label,
                            gp_error *err)
{
    uint64_t at;
    gp_status status;

    if (list->count == GP_STORE_SAMPLES_MAX)
        return gp_fail(err, GP_ELIMIT, "more than %d images", GP_STORE_SAMPLES_MAX);
    status = array_grow((void **)&list->entries, list->count, sizeof(*list->entries), err);
    if (status == GP_OK)
        status = array_grow((void **)&list->labels, list->count, sizeof(*list->labels), err);
    if (status == GP_OK)
        status = text_add(list, name, &at, err);
    if (status != GP_OK)
        return status;
    list->entries[list->count] = (gp_image_entry){ .name = at, .place = place };
    list->labels[list->count++] = label;
    return GP_OK;
}

gp_status gp_image_list_add_member(gp_image_list *list, uint32_t place, const char *name, int32_t label,
                                   uint64_t offset, uint32_t bytes, gp_error *err)
{
    gp_status status = array_grow((void **)&list->offsets, list->count, sizeof(*list->offsets), err);

    if (status == GP_OK)
        status = array_grow((void **)&list->sizes, list->count, sizeof(*list->sizes), err);
    if (status == GP_OK) {
        list->offsets[list->count] = offset;
        list->sizes[list->count] = bytes;
        status = gp_image_list_add(list, place, name, label, err);
    }
    return status;
}

void gp_image_list_leave_out(gp_image_list *list, const char *sentence)
{
    gp_log(GP_LOG_WARN, "left-out", "excluded: %s", sentence);
    if (list->left_out++ == 0)
        list->left_out_first = gp_strdup(sentence);
}

static void array_trim(void **items, uint32_t count, size_t bytes)
{
    void *trimmed = *items == NULL || count == 0 ? NULL : gp_realloc_array(*items, count, bytes);

    if (trimmed != NULL)
        *items = trimmed;
}

void gp_image_list_trim(gp_image_list *list)
{
    void *text = list->text.data == NULL ? NULL : gp_realloc_array(list->text.data, list->text.bytes + 1, 1);

    array_trim((void **)&list->entries, list->count, sizeof(*list->entries));
    array_trim((void **)&list->labels, list->count, sizeof(*list->labels));
    array_trim((void **)&list->offsets, list->count, sizeof(*list->offsets));
    array_trim((void **)&list->sizes, list->count, sizeof(*list->sizes));
    array_trim((void **)&list->places, list->place_count, sizeof(*list->places));
    array_trim((void **)&list->classes, list->class_count, sizeof(*list->classes));
    if (text != NULL) {
        list->text.data = text;
        list->text.capacity = list->text.bytes + 1;
    }
}

const char *gp_image_list_place(const gp_image_list *list, uint32_t place)
{
    return (const char *)list->text.data + list->places[place];
}

const char *gp_image_list_name(const gp_image_list *list, uint32_t index)
{
    return (const char *)list->text.data + list->entries[index].name;
}

const char *gp_image_list_class(const gp_image_list *list, uint32_t index)
{
    return (const char *)list->text.data + list->classes[index];
}

int32_t gp_image_list_find_class(const gp_image_list *list, const char *name)
{
    for (uint32_t i = 0; i < list->class_count; i++)
        if (strcmp(gp_image_list_class(list, i), name) == 0)
            return (int32_t)i;
    return -1;
}

/* Return the hash slot of a class name: the slot that has it, or else the free slot for it. */
static uint32_t *slot_find(const gp_image_list *list, const char *name)
{
    uint32_t at = (uint32_t)gp_hash_add(GP_HASH_BEGIN, name, strlen(name)) & (list->slot_count - 1);

    while (list->slots[at] != 0 && strcmp(gp_image_list_class(list, list->slots[at] - 1), name) != 0)
        at = (at + 1) & (list->slot_count - 1);
    return &list->slots[at];
}

/* Grow the hash table so that at most half the slots are used. */
static gp_status slots_grow(gp_image_list *list, gp_error *err)
{
    uint32_t *old = list->slots;

    if (list->slot_count / 2 > list->class_count)
        return GP_OK;
    list->slots = gp_calloc(list->slot_count == 0 ? 64 : list->slot_count * 2, sizeof(*list->slots));
    if (list->slots == NULL) {
        list->slots = old;
        return gp_fail(err, GP_ENOMEM, "no memory for %u classes", list->class_count);
    }
    list->slot_count = list->slot_count == 0 ? 64 : list->slot_count * 2;
    gp_free(old);
    for (uint32_t i = 0; i < list->class_count; i++)
        *slot_find(list, gp_image_list_class(list, i)) = i + 1;
    return GP_OK;
}

gp_status gp_image_list_class_of(gp_image_list *list, const char *name, int32_t *label, gp_error *err)
{
    gp_status status = slots_grow(list, err);
    uint32_t *slot;

    if (status != GP_OK)
        return status;
    slot = slot_find(list, name);
    if (*slot == 0) {
        status = gp_image_list_add_class(list, name, err);
        if (status != GP_OK)
            return status;
        *slot = list->class_count;
    }
    *label = (int32_t)*slot - 1;
    return GP_OK;
}

typedef struct class_rank {
    const char *name;
    uint32_t was;
} class_rank;

static int class_compare(const void *left, const void *right)
{
    return strcmp(((const class_rank *)left)->name, ((const class_rank *)right)->name);
}

/* Compare whole numbers of any length: without leading zeros, the longer one is larger. */
static int number_compare(const void *left, const void *right)
{
    const char *a = ((const class_rank *)left)->name, *b = ((const class_rank *)right)->name;
    size_t zeros_a = strspn(a, "0"), zeros_b = strspn(b, "0");
    size_t length_a = strlen(a + zeros_a), length_b = strlen(b + zeros_b);
    int order = length_a != length_b ? (length_a < length_b ? -1 : 1) : strcmp(a + zeros_a, b + zeros_b);

    return order != 0 ? order : strcmp(a, b);
}

gp_status gp_image_list_sort_classes(gp_image_list *list, bool by_value, gp_error *err)
{
    class_rank *ranks = gp_calloc(list->class_count, sizeof(*ranks));
    uint64_t *sorted = gp_calloc(list->class_count, sizeof(*sorted));
    int32_t *now = gp_calloc(list->class_count, sizeof(*now));
    bool numbers = by_value;
    gp_status status = GP_OK;

    if (ranks == NULL || sorted == NULL || now == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for %u classes", list->class_count);
    for (uint32_t i = 0; status == GP_OK && i < list->class_count; i++) {
        ranks[i] = (class_rank){ gp_image_list_class(list, i), i };
        numbers &= *ranks[i].name != '\0' && ranks[i].name[strspn(ranks[i].name, "0123456789")] == '\0';
    }
    if (status == GP_OK && list->class_count > 1)
        qsort(ranks, list->class_count, sizeof(*ranks), numbers ? number_compare : class_compare);
    for (uint32_t i = 0; status == GP_OK && i < list->class_count; i++) {
        sorted[i] = list->classes[ranks[i].was];
        now[ranks[i].was] = (int32_t)i;
    }
    for (uint32_t i = 0; status == GP_OK && i < list->count; i++)
        if (list->labels[i] >= 0)
            list->labels[i] = now[list->labels[i]];
    if (status == GP_OK && list->class_count > 0)
        memcpy(list->classes, sorted, list->class_count * sizeof(*sorted));
    gp_free(ranks);
    gp_free(sorted);
    gp_free(now);
    gp_free(list->slots); /* the table refers to the old class numbers */
    list->slots = NULL;
    list->slot_count = 0;
    return status;
}

bool gp_image_list_wants(const char *name)
{
    static const char *const endings[] = { "jpg", "jpeg", "png", "jpe", "jfif" };
    const char *dot = strrchr(name, '.');

    for (size_t i = 0; dot != NULL && i < sizeof(endings) / sizeof(endings[0]); i++)
        if (strcasecmp(dot + 1, endings[i]) == 0)
            return true;
    return false;
}

size_t gp_image_list_bytes(const gp_image_list *list)
{
    return list->count * (sizeof(*list->entries) + sizeof(*list->labels)) +
           (list->offsets == NULL ? 0 : list->count * (sizeof(*list->offsets) + sizeof(*list->sizes))) +
           list->text.capacity + list->stamp_count * sizeof(*list->stamps) +
           (list->place_count + list->class_count) * sizeof(uint64_t);
}
