/* reduction.h -- reductions whose bits depend on neither schedule nor number of workers; both sides have this.
 *
 * The iterations of a loop are cut into *groups* of a fixed length, counted from 0.  One group is reduced in order
 * into one accumulator, by one worker.  Accumulators are combined by a fixed binary tree: the node (level, index)
 * is the groups [index << level, (index + 1) << level), its left half combined with its right half; where the right
 * half lies beyond the last group, it is the left half.  So each combination, and its order, follows from the number
 * of iterations alone.
 *
 *     level 2   (2,0)=============.         5 groups: ((0 1) (2 3)) 4
 *     level 1   (1,0)===.   (1,1)===.
 *     group     0   1       2   3       4
 *
 * A chunk of a loop is whole groups; the worker answers with the accumulators of the largest nodes that the chunk
 * is made of, which are determined by its first and last group.  The client joins those of all chunks, whatever
 * the order in which they come. */
#ifndef GP_REDUCTION_H
#define GP_REDUCTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "proto/task/task_wire.h"

/* ---- arithmetic ---- */

size_t gp_reduce_element_bytes(gp_reduce_kind kind); /* 0: no such kind */

/* What changes nothing when it is combined with: 0, 1, or an infinity.  bytes: a multiple of the element's. */
void gp_reduce_identity(gp_reduce_kind kind, void *into, size_t bytes);

/* into := into o from, elementwise; sums of integers are modulo 2^64; MIN and MAX of anything and NaN are NaN.
 * Neither needs to be aligned. */
void gp_reduce_combine(gp_reduce_kind kind, void *into, const void *from, size_t bytes);

/* ---- the tree ---- */

enum {
    GP_TREE_LEVELS = 48,        /* iterations are fewer than 2^48 */
    GP_TREE_GROUPS_MAX = 65536, /* of a loop whose length is known */
    GP_TREE_BLOCK_ENDLESS = 8,  /* iterations of a group when the length is not known */
};

#define GP_LOOP_ITERATIONS_MAX ((uint64_t)1 << GP_TREE_LEVELS)

/* Iterations of one group, for a loop of `total` (0 = not known): the smallest power of two that makes at most
 * GP_TREE_GROUPS_MAX groups. */
uint32_t gp_tree_block(uint64_t total);

typedef struct gp_tree_node {
    uint32_t level;
    uint64_t index;
} gp_tree_node;

/* The largest node that begins at group `first` and lies before group `last`; first < last. */
gp_tree_node gp_tree_part(uint64_t first, uint64_t last);
uint64_t gp_tree_begin(gp_tree_node node); /* its first group */
uint64_t gp_tree_end(gp_tree_node node);   /* the one after its last */

/* ---- joining nodes ---- */

typedef struct gp_tree gp_tree;

/* into := into o from. */
typedef void (*gp_tree_combine_fn)(void *context, void *into, const void *from, size_t bytes);

/* gp_tree_new -- an empty tree.
 *   bytes    of an accumulator
 *   combine  called as soon as both halves of a node are there; NULL: gp_tree_next_pair() says what is to be combined
 * GP_ENOMEM. */
gp_status gp_tree_new(gp_tree **out, size_t bytes, gp_tree_combine_fn combine, void *context, gp_error *err);
void gp_tree_free(gp_tree *tree); /* accepts NULL */
void gp_tree_clear(gp_tree *tree);

/* gp_tree_add -- the accumulator of a node (copied).  GP_EPROTO: some of its groups are there already. */
gp_status gp_tree_add(gp_tree *tree, gp_tree_node node, const void *data, gp_error *err);

/* The number of groups is known now; from here on nodes at the end have no right half. */
void gp_tree_close(gp_tree *tree, uint64_t groups);

/* Nodes that are there, in order; data is valid until the next call that changes the tree. */
size_t gp_tree_count(const gp_tree *tree);
gp_tree_node gp_tree_at(const gp_tree *tree, size_t k, const void **data);

/* The whole loop's accumulator; NULL: not all is there, or not yet combined. */
const void *gp_tree_root(const gp_tree *tree);

/* Without a combine function: two halves that were not given out before; false = none.  *node is the whole; *into
 * and *from are valid until the next call that changes the tree. */
bool gp_tree_next_pair(gp_tree *tree, gp_tree_node *node, const void **into, const void **from);
/* ... and what they make (copied).  GP_EPROTO: that pair was not given out. */
gp_status gp_tree_set_pair(gp_tree *tree, gp_tree_node node, const void *data, gp_error *err);

#endif
