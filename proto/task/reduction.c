/* Reduction arithmetic and the accumulator tree (reduction.h). */
#include "proto/task/reduction.h"

#include <math.h>
#include <string.h>

#include "common/base/memory/alloc.h"

/* ---- arithmetic ---- */

size_t gp_reduce_element_bytes(gp_reduce_kind kind)
{
    return kind == GP_REDUCE_SUM_F32                            ? sizeof(float)
           : kind > GP_REDUCE_NONE && kind <= GP_REDUCE_MAX_I64 ? 8
                                                                : 0;
}

/* Fill `into` with copies of an element. */
static void fill(void *into, const void *element, size_t size, size_t bytes)
{
    for (size_t at = 0; at + size <= bytes; at += size)
        memcpy((unsigned char *)into + at, element, size);
}

void gp_reduce_identity(gp_reduce_kind kind, void *into, size_t bytes)
{
    double number = kind == GP_REDUCE_PRODUCT_F64 ? 1.0 : kind == GP_REDUCE_MIN_F64 ? INFINITY : -INFINITY;
    int64_t integer = kind == GP_REDUCE_MIN_I64 ? INT64_MAX : INT64_MIN;

    switch (kind) {
    case GP_REDUCE_PRODUCT_F64:
    case GP_REDUCE_MIN_F64:
    case GP_REDUCE_MAX_F64:
        fill(into, &number, sizeof(number), bytes);
        break;
    case GP_REDUCE_MIN_I64:
    case GP_REDUCE_MAX_I64:
        fill(into, &integer, sizeof(integer), bytes);
        break;
    default:
        memset(into, 0, bytes);
    }
}

/* Each kind has a separate loop. memcpy() loads and stores the elements, because accumulators in
 * records may be unaligned. */
#define COMBINE(name, type, expression)                                                                      \
    static void combine_##name(unsigned char *into, const unsigned char *from, size_t bytes)                 \
    {                                                                                                        \
        for (size_t at = 0; at + sizeof(type) <= bytes; at += sizeof(type)) {                                \
            type a, b;                                                                                       \
                                                                                                             \
            memcpy(&a, into + at, sizeof(a));                                                                \
            memcpy(&b, from + at, sizeof(b));                                                                \
            a = expression;                                                                                  \
            memcpy(into + at, &a, sizeof(a));                                                                \
        }                                                                                                    \
    }

COMBINE(sum_f64, double, a + b)
COMBINE(sum_f32, float, a + b)
COMBINE(sum_i64, uint64_t, a + b)
COMBINE(product_f64, double, a *b)
COMBINE(min_f64, double, isnan(a) || a < b ? a : b)
COMBINE(max_f64, double, isnan(a) || a > b ? a : b)
COMBINE(min_i64, int64_t, a < b ? a : b)
COMBINE(max_i64, int64_t, a > b ? a : b)

void gp_reduce_combine(gp_reduce_kind kind, void *into, const void *from, size_t bytes)
{
    static void (*const combine[])(unsigned char *into, const unsigned char *from, size_t bytes) = {
        [GP_REDUCE_SUM_F64] = combine_sum_f64, [GP_REDUCE_SUM_F32] = combine_sum_f32,
        [GP_REDUCE_SUM_I64] = combine_sum_i64, [GP_REDUCE_MIN_F64] = combine_min_f64,
        [GP_REDUCE_MAX_F64] = combine_max_f64, [GP_REDUCE_PRODUCT_F64] = combine_product_f64,
        [GP_REDUCE_MIN_I64] = combine_min_i64, [GP_REDUCE_MAX_I64] = combine_max_i64
    };

    if (kind != GP_REDUCE_NONE)
        combine[kind](into, from, bytes);
}

/* ---- tree ---- */

uint32_t gp_tree_block(uint64_t total)
{
    uint64_t block = 1;

    if (total == 0)
        return GP_TREE_BLOCK_ENDLESS;
    while (block < ((uint64_t)1 << 31) && (total + block - 1) / block > GP_TREE_GROUPS_MAX)
        block *= 2;
    return (uint32_t)block;
}

gp_tree_node gp_tree_part(uint64_t first, uint64_t last)
{
    uint32_t level = 0;

    while (level + 1 < GP_TREE_LEVELS && (first >> level & 1) == 0 && first + ((uint64_t)2 << level) <= last)
        level++;
    return (gp_tree_node){ level, first >> level };
}

uint64_t gp_tree_begin(gp_tree_node node)
{
    return node.index << node.level;
}

uint64_t gp_tree_end(gp_tree_node node)
{
    return (node.index + 1) << node.level;
}

/* ---- combining nodes ---- */

/* A node that is present in the tree. */
typedef struct tree_entry {
    gp_tree_node node;
    bool given; /* belongs to a pair returned by gp_tree_next_pair() */
    void *data;
} tree_entry;

/* Entries are disjoint and sorted, so sibling nodes are neighbors. */
struct gp_tree {
    size_t bytes;
    gp_tree_combine_fn combine;
    void *context;
    uint64_t groups; /* UINT64_MAX: unknown */
    tree_entry *entries;
    size_t count, capacity;
    void **spare; /* unused accumulators for later nodes; capacity as for entries */
    size_t spare_count;
};

gp_status gp_tree_new(gp_tree **out, size_t bytes, gp_tree_combine_fn combine, void *context, gp_error *err)
{
    gp_tree *tree = gp_calloc(1, sizeof(*tree));

    if (tree == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a reduction");
    tree->bytes = bytes;
    tree->combine = combine;
    tree->context = context;
    tree->groups = UINT64_MAX;
    *out = tree;
    return GP_OK;
}

void gp_tree_clear(gp_tree *tree)
{
    while (tree->count > 0)
        tree->spare[tree->spare_count++] = tree->entries[--tree->count].data;
    tree->groups = UINT64_MAX;
}

void gp_tree_free(gp_tree *tree)
{
    if (tree == NULL)
        return;
    gp_tree_clear(tree);
    while (tree->spare_count > 0)
        gp_free(tree->spare[--tree->spare_count]);
    gp_free(tree->spare);
    gp_free(tree->entries);
    gp_free(tree);
}

/* Return the first entry that starts at or after group `begin`. */
static size_t tree_find(const gp_tree *tree, uint64_t begin)
{
    size_t low = 0, high = tree->count;

    if (high > 0 && gp_tree_begin(tree->entries[high - 1].node) < begin)
        return high; /* fast path: groups from one worker arrive in order */
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (gp_tree_begin(tree->entries[middle].node) < begin)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Remove entry k and keep its accumulator as a spare. */
static void tree_remove(gp_tree *tree, size_t k)
{
    tree->spare[tree->spare_count++] = tree->entries[k].data;
    tree->count--;
    memmove(tree->entries + k, tree->entries + k + 1, (tree->count - k) * sizeof(*tree->entries));
}

/* Return whether entries k and k + 1 are halves of one node. */
static bool tree_halves(const gp_tree *tree, size_t k)
{
    const gp_tree_node *left, *right;

    if (k + 1 >= tree->count)
        return false;
    left = &tree->entries[k].node;
    right = &tree->entries[k + 1].node;
    return left->level == right->level && left->index % 2 == 0 && right->index == left->index + 1;
}

static gp_tree_node node_above(gp_tree_node node)
{
    return (gp_tree_node){ node.level + 1, node.index / 2 };
}

/* Combine and lift entry k as far as possible. An entry that was returned in a pair stays
 * unchanged. */
static void tree_settle(gp_tree *tree, size_t k)
{
    for (;;) {
        tree_entry *entry = &tree->entries[k];
        bool alone = entry->node.index % 2 == 0 && gp_tree_end(entry->node) >= tree->groups;

        if (entry->given)
            return;
        if (alone && entry->node.index > 0) {
            entry->node = node_above(entry->node);
            continue;
        }
        if (tree->combine == NULL)
            return;
        if (k > 0 && tree_halves(tree, k - 1))
            k--;
        else if (!tree_halves(tree, k))
            return;
        tree->combine(tree->context, tree->entries[k].data, tree->entries[k + 1].data, tree->bytes);
        tree->entries[k].node = node_above(tree->entries[k].node);
        tree_remove(tree, k + 1);
    }
}

gp_status gp_tree_add(gp_tree *tree, gp_tree_node node, const void *data, gp_error *err)
{
    size_t k;
    void *copy;

    if (node.level >= GP_TREE_LEVELS || node.index >= GP_LOOP_ITERATIONS_MAX >> node.level)
        return gp_fail(err, GP_EPROTO, "a partial result of a reduction is outside the loop");
    k = tree_find(tree, gp_tree_begin(node));
    if ((k < tree->count && gp_tree_begin(tree->entries[k].node) < gp_tree_end(node)) ||
        (k > 0 && gp_tree_end(tree->entries[k - 1].node) > gp_tree_begin(node)))
        return gp_fail(err, GP_EPROTO, "a partial result of a reduction was received twice");

    /* Double the capacity. Entries and spare accumulators together never exceed it. */
    if (tree->count == tree->capacity) {
        size_t capacity = tree->capacity == 0 ? 16 : tree->capacity * 2;
        tree_entry *entries = gp_realloc_array(tree->entries, capacity, sizeof(*entries));
        void **spare = entries == NULL ? NULL : gp_realloc_array(tree->spare, capacity, sizeof(*spare));

        tree->entries = entries != NULL ? entries : tree->entries;
        if (spare == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for %zu partial results of a reduction", capacity);
        tree->spare = spare;
        tree->capacity = capacity;
    }
    copy = tree->spare_count > 0 ? tree->spare[--tree->spare_count] : gp_malloc(tree->bytes);
    if (copy == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for an accumulator of %zu bytes", tree->bytes);
    memcpy(copy, data, tree->bytes);
    memmove(tree->entries + k + 1, tree->entries + k, (tree->count - k) * sizeof(*tree->entries));
    tree->entries[k] = (tree_entry){ .node = node, .data = copy };
    tree->count++;
    tree_settle(tree, k);
    return GP_OK;
}

void gp_tree_close(gp_tree *tree, uint64_t groups)
{
    tree->groups = groups;
    if (tree->count > 0)
        tree_settle(tree, tree->count - 1);
}

size_t gp_tree_count(const gp_tree *tree)
{
    return tree->count;
}

gp_tree_node gp_tree_at(const gp_tree *tree, size_t k, const void **data)
{
    *data = tree->entries[k].data;
    return tree->entries[k].node;
}

const void *gp_tree_root(const gp_tree *tree)
{
    if (tree->count != 1 || tree->entries[0].node.index != 0 ||
        gp_tree_end(tree->entries[0].node) < tree->groups)
        return NULL;
    return tree->entries[0].data;
}

/* ---- combining by the caller ---- */

bool gp_tree_next_pair(gp_tree *tree, gp_tree_node *node, const void **into, const void **from)
{
    for (size_t k = 0; k + 1 < tree->count; k++) {
        if (tree->entries[k].given || !tree_halves(tree, k))
            continue;
        tree->entries[k].given = tree->entries[k + 1].given = true;
        *node = node_above(tree->entries[k].node);
        *into = tree->entries[k].data;
        *from = tree->entries[k + 1].data;
        return true;
    }
    return false;
}

gp_status gp_tree_set_pair(gp_tree *tree, gp_tree_node node, const void *data, gp_error *err)
{
    size_t k = tree_find(tree, gp_tree_begin(node));

    if (k == tree->count || !tree->entries[k].given || !tree_halves(tree, k) ||
        tree->entries[k].node.level + 1 != node.level || tree->entries[k].node.index / 2 != node.index)
        return gp_fail(err, GP_EPROTO, "unexpected partial result of a reduction");
    memcpy(tree->entries[k].data, data, tree->bytes);
    tree->entries[k].node = node;
    tree->entries[k].given = false;
    tree_remove(tree, k + 1);
    tree_settle(tree, k);
    return GP_OK;
}
