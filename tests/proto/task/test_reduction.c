/* Reduction tree compared with a plain recursion, for random chunk boundaries and random orders of
 * arrival. */
#include "proto/task/reduction.h"

#include "tests/gp_test.h"

/* ---- a combine function that is neither commutative nor associative, to detect a wrong tree shape
 * ---- */

typedef uint64_t shape;

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static shape leaf(uint64_t group)
{
    return mix(group + 1);
}

static shape joined(shape left, shape right)
{
    return mix(left * 3 + mix(right));
}

static void combine(void *context, void *into, const void *from, size_t bytes)
{
    shape a, b;
    unsigned *calls = context;

    CHECK_INT(sizeof(shape), bytes);
    memcpy(&a, into, sizeof(a));
    memcpy(&b, from, sizeof(b));
    a = joined(a, b);
    memcpy(into, &a, sizeof(a));
    (*calls)++;
}

/* Combine the groups of a node by recursion, as reduction.h defines it. */
static shape reference(gp_tree_node node, uint64_t groups)
{
    gp_tree_node left = { node.level - 1, node.index * 2 }, right = { node.level - 1, node.index * 2 + 1 };

    if (node.level == 0)
        return leaf(node.index);
    if (gp_tree_begin(right) >= groups)
        return reference(left, groups);
    return joined(reference(left, groups), reference(right, groups));
}

static shape reference_root(uint64_t groups)
{
    uint32_t level = 0;

    while ((uint64_t)1 << level < groups)
        level++;
    return reference((gp_tree_node){ level, 0 }, groups);
}

static uint64_t random_state = 42;

static uint64_t random_below(uint64_t n)
{
    return mix(random_state++) % n;
}

/* Split `groups` into random chunks, shuffle the chunks, and list the nodes that they consist
 * of. */
static size_t random_nodes(gp_tree_node *nodes, uint64_t groups)
{
    uint64_t cut[1000];
    size_t chunks = 0, count = 0;

    for (uint64_t first = 0; first < groups; chunks++) {
        cut[chunks] = first;
        first += 1 + random_below(groups < 20 ? 3 : 20);
    }
    for (size_t k = chunks; k-- > 1;) {
        size_t other = random_below(k + 1);
        uint64_t swapped = cut[k];

        cut[k] = cut[other];
        cut[other] = swapped;
    }
    for (size_t k = 0; k < chunks; k++) {
        uint64_t last = groups;

        for (size_t other = 0; other < chunks; other++)
            if (cut[other] > cut[k] && cut[other] < last)
                last = cut[other];
        for (uint64_t first = cut[k]; first < last; first = gp_tree_end(nodes[count - 1]))
            nodes[count++] = gp_tree_part(first, last);
    }
    return count;
}

TEST(any_chunking_and_order_yields_the_same_tree)
{
    gp_tree_node nodes[1000];
    gp_error err;

    for (int round = 0; round < 300; round++) {
        uint64_t groups = 1 + random_below(round < 100 ? 17 : 400);
        size_t count = random_nodes(nodes, groups);
        bool close_early = round % 2 == 0;
        unsigned calls = 0;
        gp_tree *tree;

        REQUIRE_OK(gp_tree_new(&tree, sizeof(shape), combine, &calls, &err), err);
        if (close_early)
            gp_tree_close(tree, groups);
        for (size_t k = 0; k < count; k++) {
            shape value = reference(nodes[k], groups);

            CHECK(gp_tree_root(tree) == NULL);
            REQUIRE_OK(gp_tree_add(tree, nodes[k], &value, &err), err);
        }
        if (!close_early)
            gp_tree_close(tree, groups);
        REQUIRE(gp_tree_root(tree) != NULL);
        CHECK_INT(reference_root(groups), *(const shape *)gp_tree_root(tree));
        gp_tree_free(tree);
    }
}

TEST(caller_combined_pairs_yield_the_same_tree)
{
    gp_tree_node nodes[1000], waiting[4];
    gp_error err;

    for (int round = 0; round < 200; round++) {
        uint64_t groups = 1 + random_below(200);
        size_t count = random_nodes(nodes, groups), k = 0;
        shape value, halves[4][2];
        uint32_t out = 0;
        gp_tree *tree;

        REQUIRE_OK(gp_tree_new(&tree, sizeof(shape), NULL, NULL, &err), err);
        gp_tree_close(tree, groups);
        while (k < count || gp_tree_root(tree) == NULL) {
            const void *into, *from;

            if (k < count) {
                value = reference(nodes[k], groups);
                REQUIRE_OK(gp_tree_add(tree, nodes[k++], &value, &err), err);
            }
            if (out < 4 && gp_tree_next_pair(tree, &waiting[out], &into, &from)) {
                memcpy(&halves[out][0], into, sizeof(shape));
                memcpy(&halves[out++][1], from, sizeof(shape));
            } else if (out > 0) { /* a worker answers */
                out--;
                value = joined(halves[out][0], halves[out][1]);
                REQUIRE_OK(gp_tree_set_pair(tree, waiting[out], &value, &err), err);
            }
        }
        CHECK_INT(reference_root(groups), *(const shape *)gp_tree_root(tree));
        gp_tree_free(tree);
    }
}

TEST(duplicate_nodes_are_refused)
{
    unsigned calls = 0;
    shape value = 1;
    gp_tree *tree;
    gp_error err;

    REQUIRE_OK(gp_tree_new(&tree, sizeof(shape), combine, &calls, &err), err);
    REQUIRE_OK(gp_tree_add(tree, (gp_tree_node){ 2, 1 }, &value, &err), err);
    CHECK_STATUS(GP_EPROTO, gp_tree_add(tree, (gp_tree_node){ 2, 1 }, &value, &err));
    CHECK_STATUS(GP_EPROTO, gp_tree_add(tree, (gp_tree_node){ 0, 5 }, &value, &err));
    CHECK_STATUS(GP_EPROTO, gp_tree_add(tree, (gp_tree_node){ 3, 0 }, &value, &err));
    CHECK_STATUS(GP_EPROTO, gp_tree_add(tree, (gp_tree_node){ 60, 0 }, &value, &err));
    CHECK_STATUS(GP_EPROTO, gp_tree_add(tree, (gp_tree_node){ 1, UINT64_MAX / 2 }, &value, &err));
    CHECK_STATUS(GP_EPROTO, gp_tree_set_pair(tree, (gp_tree_node){ 3, 0 }, &value, &err));
    CHECK_INT(1, gp_tree_count(tree));
    gp_tree_clear(tree);
    CHECK_INT(0, gp_tree_count(tree));
    REQUIRE_OK(gp_tree_add(tree, (gp_tree_node){ 0, 5 }, &value, &err), err);
    gp_tree_free(tree);
}

static gp_status make_and_fill(gp_error *err)
{
    unsigned calls = 0;
    shape value = 1;
    gp_tree *tree;
    gp_status status = gp_tree_new(&tree, sizeof(shape), combine, &calls, err);

    if (status != GP_OK)
        return status;
    for (uint64_t group = 0; group < 80 && status == GP_OK; group += 2)
        status = gp_tree_add(tree, (gp_tree_node){ 0, group }, &value, err);
    gp_tree_free(tree);
    return status;
}

TEST(failed_allocations_leave_the_tree_intact)
{
    gp_error err;

    CHECK_EVERY_ALLOCATION(make_and_fill(&err), (void)0);
}

TEST(group_size_depends_on_the_length_only)
{
    CHECK_INT(1, gp_tree_block(1));
    CHECK_INT(1, gp_tree_block(GP_TREE_GROUPS_MAX));
    CHECK_INT(2, gp_tree_block(GP_TREE_GROUPS_MAX + 1));
    CHECK_INT(16, gp_tree_block(1000000));
    CHECK_INT(GP_TREE_BLOCK_ENDLESS, gp_tree_block(0));
    CHECK(gp_tree_block(GP_LOOP_ITERATIONS_MAX) >= 1u << 31);
}

TEST(each_kind_combines_and_has_an_identity)
{
    static const struct {
        gp_reduce_kind kind;
        double a, b, result;
    } kinds[] = {
        { GP_REDUCE_SUM_F64, 2, 3, 5 },     { GP_REDUCE_PRODUCT_F64, 2, 3, 6 },
        { GP_REDUCE_MIN_F64, 2, 3, 2 },     { GP_REDUCE_MAX_F64, 2, 3, 3 },
        { GP_REDUCE_SUM_I64, 2, -3, -1 },   { GP_REDUCE_MIN_I64, 2, -3, -3 },
        { GP_REDUCE_MAX_I64, 2, -3, 2 },    { GP_REDUCE_MIN_F64, NAN, 3, NAN },
        { GP_REDUCE_MAX_F64, 3, NAN, NAN }, { GP_REDUCE_SUM_F32, 2, 3, 5 },
    };

    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        gp_reduce_kind kind = kinds[k].kind;
        bool integer = kind == GP_REDUCE_SUM_I64 || kind == GP_REDUCE_MIN_I64 || kind == GP_REDUCE_MAX_I64;
        bool narrow = kind == GP_REDUCE_SUM_F32;
        unsigned char memory[2][2 * 8 + 1]; /* accumulators need no alignment */
        size_t size = gp_reduce_element_bytes(kind);

        gp_reduce_identity(kind, memory[0] + 1, 2 * size);
        for (int side = 0; side < 2; side++) {
            double number = side == 0 ? kinds[k].a : kinds[k].b;
            float small = (float)number;
            int64_t whole = integer ? (int64_t)number : 0;
            const void *element = integer ? (void *)&whole : narrow ? (void *)&small : (void *)&number;

            memcpy(memory[1] + 1, element, size);
            memcpy(memory[1] + 1 + size, element, size);
            gp_reduce_combine(kind, memory[0] + 1, memory[1] + 1, 2 * size);
        }
        for (size_t at = 0; at < 2; at++) {
            double number;
            float small;
            int64_t whole;

            memcpy(&number, memory[0] + 1 + (narrow ? 0 : at * size), sizeof(number));
            memcpy(&small, memory[0] + 1 + at * size, sizeof(small));
            memcpy(&whole, memory[0] + 1 + (narrow ? 0 : at * size), sizeof(whole));
            number = integer ? (double)whole : narrow ? (double)small : number;
            CHECK(number == kinds[k].result || (isnan(number) && isnan(kinds[k].result)));
        }
    }
    CHECK_INT(0, gp_reduce_element_bytes((gp_reduce_kind)99));
}
