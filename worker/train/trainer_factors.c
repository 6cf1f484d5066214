/* trainer_factors.c -- compute weight gradients from their factors (factors.h).
 *
 * In an exchange of a gradient dW = dY^T X, each rank writes it and one rank reads all: N + N
 * passes over `outputs * inputs` numbers. The factors are `samples * (outputs + inputs)` numbers,
 * written once. The arithmetic cost is equal: each rank multiplies its rows with all samples,
 * rather than all rows with its samples. Both factors are in one rank's arena, with one row per
 * sample at the index of the sample in the mini-batch. So shares of any size, shares of several
 * calls and a smaller last mini-batch need no special case: the sum covers the samples counted in
 * the header.
 *
 *   compute: each rank writes its rows -> header (all rows are written) -> commit: read ->
 *   barrier -> next step overwrites
 *
 * This is part of the sharded update (trainer_shard.c) and produces this rank's gradient shard. */
#include "worker/train/trainer_factors.h"

#include "common/base/memory/alloc.h"
#include "worker/train/trainer_shard.h"

/* Relative cost of a factor number, which each tile reads again, to a gradient number. */
enum { FACTOR_COST = 8 };

/* Numbers in a tile, which fits the second-level cache. A tile has whole rows, so that weights
 * and state are accessed in order (runs of 2 KB take three times as long). One panel of x is
 * multiplied with all rows of the tile while it is in the cache. */
enum {
    TILE_NUMBERS = 131072,
    COLUMNS_MAX = TILE_NUMBERS / GP_FACTOR_ROWS / GP_FACTOR_COLUMNS * GP_FACTOR_COLUMNS
};

static size_t whole_panels(size_t columns)
{
    return (columns + GP_FACTOR_COLUMNS - 1) / GP_FACTOR_COLUMNS * GP_FACTOR_COLUMNS;
}

gp_status gp_factor_list_init(gp_factor_list *list, const gp_graph *graph, uint32_t batch, gp_error *err)
{
    const gp_ops *ops = &graph->ops[GP_PHASE_TRAIN];

    list->factor = gp_calloc(graph->parameter_count, sizeof(*list->factor));
    if (list->factor == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a list of %u parameters", graph->parameter_count);
    for (const gp_op *op = ops->op; op < ops->op + ops->count; op++) {
        const gp_parameter *weights;

        if (op->code != GP_OP_FC_BACKWARD_WEIGHTS)
            continue;
        weights = &graph->parameters[graph->values[op->out[0]].parameter];

        gp_factor factor = { .parameter = graph->values[op->out[0]].parameter,
                             .outputs = (size_t)weights->shape.dim[0],
                             .inputs = (size_t)weights->shape.dim[1],
                             .samples = batch };

        if (gp_parameter_learns(weights) &&
            FACTOR_COST * (double)batch * (double)(factor.inputs + factor.outputs) <=
                (double)factor.inputs * (double)factor.outputs)
            list->factor[list->count++] = factor;
    }
    return GP_OK;
}

void gp_factor_list_deinit(gp_factor_list *list)
{
    gp_free(list->factor);
}

size_t gp_factor_list_bytes(const gp_factor_list *list)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < list->count; i++)
        bytes += gp_factor_bytes(&list->factor[i]) + 64; /* 64: alignment */
    return bytes;
}

gp_status gp_factor_list_place(gp_factor_list *list, gp_graph *graph, gp_comm *comm, gp_error *err)
{
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < list->count && status == GP_OK; i++) {
        gp_factor *factor = &list->factor[i];
        void *memory;

        status = gp_comm_arena_alloc_of(comm, GP_SHARD_OWNER, gp_factor_bytes(factor), &memory, err);
        if (status != GP_OK)
            return status;
        gp_factor_place(factor, memory);
        gp_graph_put_last(graph, factor->parameter);
    }
    /* After the barrier, the owner has allocated the memory. */
    return list->count == 0 ? GP_OK : gp_comm_barrier(comm, err);
}

const gp_factor *gp_factor_list_find(const gp_factor_list *list, uint32_t parameter)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->factor[i].parameter == parameter)
            return &list->factor[i];
    return NULL;
}

/* Compute columns [first, first + columns) in some blocks' rows, and update these weights. */
static void update_rows(const gp_optim_pass *pass, const gp_factor *factor, size_t samples, size_t block,
                        size_t blocks, size_t first, size_t columns)
{
    _Alignas(64) float tile[TILE_NUMBERS];
    size_t row = block * GP_FACTOR_ROWS, rows = blocks * GP_FACTOR_ROWS, stride = whole_panels(columns);

    for (size_t c = 0; c < columns; c += GP_FACTOR_COLUMNS)
        for (size_t b = 0; b < blocks; b++)
            gp_factor_product(factor, samples, block + b, first + c, tile + b * GP_FACTOR_ROWS * stride + c,
                              stride);
    for (size_t r = 0; r < rows && row + r < factor->outputs; r++)
        gp_optim_update(pass, factor->parameter, (row + r) * factor->inputs + first, columns,
                        tile + r * stride);
}

void gp_factor_update(const gp_factor *factor, const gp_optim_pass *pass, size_t samples, size_t part,
                      size_t parts)
{
    const size_t blocks = (factor->outputs + GP_FACTOR_ROWS - 1) / GP_FACTOR_ROWS;
    const size_t cuts = (factor->inputs + COLUMNS_MAX - 1) / COLUMNS_MAX;
    const size_t width = whole_panels((factor->inputs + cuts - 1) / cuts);
    const size_t most = TILE_NUMBERS / width / GP_FACTOR_ROWS, end = blocks * (part + 1) / parts;

    for (size_t block = blocks * part / parts; block < end; block += most)
        for (size_t first = 0; first < factor->inputs; first += width)
            update_rows(pass, factor, samples, block, end - block < most ? end - block : most, first,
                        factor->inputs - first < width ? factor->inputs - first : width);
}
