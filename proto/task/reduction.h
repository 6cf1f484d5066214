/* Deterministic reductions: the result is bitwise identical for any schedule and worker count.
 * Client and worker share this code.
 *
 * A loop's iterations are split into groups with a fixed length, counted from 0. One worker reduces
 * a group in order into one accumulator. A fixed binary tree combines the accumulators. Node
 * (level, index) covers the groups [index << level, (index + 1) << level) and combines a left half
 * with a right half, or is only the left half if the right half lies beyond the last group. So the
 * iteration count alone determines all combinations and their order.
 *
 *     level 2   (2,0)=============.         5 groups: ((0 1) (2 3)) 4
 *     level 1   (1,0)===.   (1,1)===.
 *     group     0   1       2   3       4
 *
 * A loop chunk consists of whole groups. The worker returns the accumulators for the largest nodes
 * inside the chunk; first and last group determine these nodes. The client combines the nodes from
 * all chunks, in whichever order they arrive. */
#ifndef GP_REDUCTION_H
#define GP_REDUCTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "proto/task/task_wire.h"

/* ---- arithmetic ---- */

size_t gp_reduce_element_bytes(gp_reduce_kind kind); /* Return the element size; 0: invalid kind. */

/* Fill an accumulator with the identity element: 0, 1, or an infinity. bytes: a multiple of the
 * element size. */
void gp_reduce_identity(gp_reduce_kind kind, void *into, size_t bytes);

/* Compute into := into op from, element by element. Integer sums wrap modulo 2^64; MIN and MAX with
 * a NaN are NaN. The operands need no alignment. */
void gp_reduce_combine(gp_reduce_kind kind, void *into, const void *from, size_t bytes);

/* ---- tree ---- */

enum {
    GP_TREE_LEVELS = 48,        /* a loop has fewer than 2^48 iterations */
    GP_TREE_GROUPS_MAX = 65536, /* for a loop with known length */
    GP_TREE_BLOCK_ENDLESS = 8,  /* iterations per group for a loop with unknown length */
};

#define GP_LOOP_ITERATIONS_MAX ((uint64_t)1 << GP_TREE_LEVELS)

/* Return the iterations per group for a loop with `total` iterations (0: unknown): the smallest
 * power of two that yields at most GP_TREE_GROUPS_MAX groups. */
uint32_t gp_tree_block(uint64_t total);

/* Tree node: covers the groups [index << level, (index + 1) << level). */
typedef struct gp_tree_node {
    uint32_t level;
    uint64_t index;
} gp_tree_node;

/* Return the largest node that starts at group `first` and ends at or before `last` (first <
 * last). */
gp_tree_node gp_tree_part(uint64_t first, uint64_t last);
uint64_t gp_tree_begin(gp_tree_node node); /* Return a node's first group. */
uint64_t gp_tree_end(gp_tree_node node);   /* Return the group after a node's last group. */

/* ---- combining nodes ---- */

typedef struct gp_tree gp_tree;

/* Compute into := into op from. */
typedef void (*gp_tree_combine_fn)(void *context, void *into, const void *from, size_t bytes);

/* Create an empty tree.
 *
 *   bytes    accumulator size
 *   combine  called as soon as both halves of a node are present; NULL: the caller combines the
 *            pairs that gp_tree_next_pair() returns
 *
 * GP_ENOMEM: out of memory. */
gp_status gp_tree_new(gp_tree **out, size_t bytes, gp_tree_combine_fn combine, void *context, gp_error *err);
void gp_tree_free(gp_tree *tree); /* Free a tree; accepts NULL. */
void gp_tree_clear(gp_tree *tree);

/* Add a copy of a node's accumulator. GP_EPROTO: the tree already covers some of these groups, or
 * the node lies beyond all iterations. GP_ENOMEM: out of memory. */
gp_status gp_tree_add(gp_tree *tree, gp_tree_node node, const void *data, gp_error *err);

/* Set the group count. From now on nodes at the end have no right half. */
void gp_tree_close(gp_tree *tree, uint64_t groups);

/* Return how many nodes are present, or one node in group order. *data is valid until the tree
 * changes. */
size_t gp_tree_count(const gp_tree *tree);
gp_tree_node gp_tree_at(const gp_tree *tree, size_t k, const void **data);

/* Return the whole loop's accumulator; NULL: nodes are missing or not yet combined. */
const void *gp_tree_root(const gp_tree *tree);

/* Get a pair of halves that has not been returned before, for trees without a combine function.
 * *node is the combined node. *into and *from are valid until the tree changes. Return false if no
 * pair is ready. */
bool gp_tree_next_pair(gp_tree *tree, gp_tree_node *node, const void **into, const void **from);

/* Store a copy of the combined accumulator. GP_EPROTO: gp_tree_next_pair() did not return this
 * pair. */
gp_status gp_tree_set_pair(gp_tree *tree, gp_tree_node node, const void *data, gp_error *err);

#endif
