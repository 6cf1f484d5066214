/* trainer_factors.c -- computing gradients from their factors (factors.h).
 *
 * A gradient dW = dY^T X that is exchanged is written by each rank and read by one: N + N passes over `outputs * inputs`
 * numbers. Its factors are `samples * (outputs + inputs)` numbers, written once. The arithmetic is the same: each rank
 * multiplies its rows with all samples instead of all rows with its samples. Both factors lie in the arena of one rank, with
 * a row for each sample at the position of the sample in the mini-batch. So shares of any size, shares of several calls and
 * a smaller last mini-batch need no special case: the sum is over the samples that the header counts.
 *
 *     compute: each rank its rows -> header (all rows are there) -> commit: read -> barrier -> the next step overwrites
 *
 * This is part of the sharded update (trainer_shard.c): it produces this rank's shard of a gradient. */
#include "worker/train/trainer_factors.h"

#include "common/base/memory/alloc.h"
#include "worker/train/trainer_shard.h"

/* Cost of a number of a factor, which each tile reads again, relative to a number of a gradient. */
enum { FACTOR_COST = 8 };

/* Numbers of a tile, in the second-level cache: whole rows, so that weights and state are read and written in order (runs of
 * 2 KB take three times as long). One panel of x is multiplied with all rows of the tile while it is in the cache. */
enum {
    TILE_NUMBERS = 131072,
    COLUMNS_MAX = TILE_NUMBERS / GP_FACTOR_ROWS / GP_FACTOR_COLUMNS * GP_FACTOR_COLUMNS
};

static size_t whole_panels(size_t columns)
{
    return (columns + GP_FACTOR_COLUMNS - 1) / GP_FACTOR_COLUMNS * GP_FACTOR_COLUMNS;
}

static bool factor_pays(const gp_factor *factor)
{
    return FACTOR_COST * (double)factor->samples * (double)(factor->inputs + factor->outputs) <=
           (double)factor->inputs * (double)factor->outputs;
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

        if (gp_parameter_learns(weights) && factor_pays(&factor))
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
        bytes += gp_factor_bytes(&list->factor[i]) + 64; /* aligned */
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
    /* The owner has taken the memory when all ranks have passed the barrier. */
    return list->count == 0 ? GP_OK : gp_comm_barrier(comm, err);
}

const gp_factor *gp_factor_list_find(const gp_factor_list *list, uint32_t parameter)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->factor[i].parameter == parameter)
            return &list->factor[i];
    return NULL;
}

/* Compute columns [first, first + columns) of the rows of some blocks, and update the weights there. */
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
