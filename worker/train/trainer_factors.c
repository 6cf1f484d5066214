/* trainer_factors.c -- of which weights the ranks exchange no gradient but what it is the product of (factors.h).
 *
 * A gradient dW = dY^T X that is exchanged is written by each rank, and read by one: N + N passes over `outputs * inputs`
 * numbers.  Its factors are `samples * (outputs + inputs)` numbers, written once; the arithmetic is the same, as each rank
 * multiplies its part of the rows with all samples instead of all rows with its part of the samples.  Both lie in the
 * arena of one rank, a row for each sample of the mini-batch at the sample's place in it.  So shares of any size, calls
 * that compute a share in parts, and a last, smaller mini-batch are no cases: the sum is over the samples that the header
 * counts.
 *
 *     compute: each rank its rows -> header (all rows are there) -> commit: read -> barrier -> the next step overwrites
 *
 * Part of the shared update (trainer_shard.c), of which this is how a slice of the gradient comes to be. */
#include "common/base/memory/alloc.h"
#include "worker/train/trainer_state.h"

/* COST: numbers of a gradient that cost what one of the factors does, which is read again for every tile. */
enum { COST = 8, OWNER = 0 };

/* Numbers of a tile, in the second-level cache: whole rows and some of them, so that weights and state are read and written as
 * they lie (runs of 2 KB instead take three times as long).  A panel of x is multiplied with all of them while it is near. */
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
    return COST * (double)factor->samples * (double)(factor->inputs + factor->outputs) <=
           (double)factor->inputs * (double)factor->outputs;
}

gp_status gp_trainer_choose_factors(gp_trainer *trainer, gp_error *err)
{
    const gp_graph *graph = trainer->graph;
    const gp_ops *ops = &graph->ops[GP_PHASE_TRAIN];

    trainer->factors = gp_calloc(graph->parameter_count, sizeof(*trainer->factors));
    if (trainer->factors == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a list of %u parameters", graph->parameter_count);
    for (const gp_op *op = ops->op; op < ops->op + ops->count; op++) {
        const gp_parameter *weights;

        if (op->code != GP_OP_FC_BACKWARD_WEIGHTS)
            continue;
        weights = &graph->parameters[graph->values[op->out[0]].parameter];

        gp_factor factor = { .parameter = graph->values[op->out[0]].parameter,
                             .outputs = (size_t)weights->shape.dim[0],
                             .inputs = (size_t)weights->shape.dim[1],
                             .samples = trainer->world_batch };

        if (gp_parameter_learns(weights) && factor_pays(&factor))
            trainer->factors[trainer->factor_count++] = factor;
    }
    return GP_OK;
}

size_t gp_trainer_factor_bytes(const gp_trainer *trainer)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < trainer->factor_count; i++)
        bytes += gp_factor_bytes(&trainer->factors[i]) + 64; /* aligned */
    return bytes;
}

gp_status gp_trainer_place_factors(gp_trainer *trainer, gp_error *err)
{
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < trainer->factor_count && status == GP_OK; i++) {
        gp_factor *factor = &trainer->factors[i];
        void *memory;

        status = gp_comm_arena_alloc_of(trainer->comm, OWNER, gp_factor_bytes(factor), &memory, err);
        if (status != GP_OK)
            return status;
        gp_factor_place(factor, memory);
        gp_graph_put_last(trainer->graph, factor->parameter);
    }
    return trainer->factor_count == 0 ? GP_OK
                                      : gp_comm_barrier(trainer->comm, err); /* the owner has taken it */
}

const gp_factor *gp_trainer_factor(const gp_trainer *trainer, uint32_t parameter)
{
    for (uint32_t i = 0; i < trainer->factor_count; i++)
        if (trainer->factors[i].parameter == parameter)
            return &trainer->factors[i];
    return NULL;
}

/* Columns [first, first + columns) of the rows of some blocks: made, then updated. */
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

void gp_trainer_update_factor(const gp_trainer *trainer, const gp_optim_pass *pass, const gp_factor *factor,
                              uint32_t thread, uint32_t threads)
{
    const size_t samples = (size_t)trainer->header[HEADER_SAMPLES];
    const size_t blocks = (factor->outputs + GP_FACTOR_ROWS - 1) / GP_FACTOR_ROWS;
    const size_t parts = (size_t)trainer->world * threads, part = (size_t)trainer->rank * threads + thread;
    const size_t cuts = (factor->inputs + COLUMNS_MAX - 1) / COLUMNS_MAX;
    const size_t width = whole_panels((factor->inputs + cuts - 1) / cuts);
    const size_t most = TILE_NUMBERS / width / GP_FACTOR_ROWS, end = blocks * (part + 1) / parts;

    for (size_t block = blocks * part / parts; block < end; block += most)
        for (size_t first = 0; first < factor->inputs; first += width)
            update_rows(pass, factor, samples, block, end - block < most ? end - block : most, first,
                        factor->inputs - first < width ? factor->inputs - first : width);
}
