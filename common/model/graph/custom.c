/* Convert user-defined layer kinds to gp_kind: a parameter table for the settings, and two
 * operations that carry the user's functions. */
#include "common/model/graph/custom.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/model/graph/graph.h"

/* A registered kind. */
typedef struct custom_kind {
    gp_kind kind;                               /* must be the first member, see own_of() */
    gp_layer_kind given;                        /* copied user description */
    gp_param table[GP_LAYER_KIND_SETTINGS + 1]; /* settings */
} custom_kind;

/* Registered kinds, each allocated separately: networks point to them. */
static custom_kind *added[GP_LAYER_KINDS_MAX];
static uint32_t added_count;

/* Convert a gp_kind with infer == custom_infer. */
static const custom_kind *own_of(const gp_kind *kind)
{
    return (const custom_kind *)(const void *)kind;
}

gp_layer_dims gp_custom_dims(const gp_shape *shape)
{
    gp_layer_dims dims = { .rank = shape->rank < GP_LAYER_KIND_DIMS ? shape->rank : GP_LAYER_KIND_DIMS };

    memcpy(dims.dim, shape->dim, dims.rank * sizeof(dims.dim[0]));
    return dims;
}

/* ---- shapes ---- */

/* Check and convert dimensions from infer(). what: noun for error messages. */
static gp_status shape_of(gp_shape *out, const gp_layer_dims *dims, const char *what, gp_error *err)
{
    if (dims->rank > GP_LAYER_KIND_DIMS)
        return gp_fail(err, GP_EINVAL,
                       "infer returned %s with %" PRIu32 " dimensions, at most %d are supported", what,
                       dims->rank, GP_LAYER_KIND_DIMS);
    *out = (gp_shape){ .rank = dims->rank };
    for (uint32_t i = 0; i < dims->rank; i++) {
        if (dims->dim[i] < 1)
            return gp_fail(err, GP_EINVAL, "infer returned %s with a dimension of %" PRId64, what,
                           dims->dim[i]);
        out->dim[i] = dims->dim[i];
    }
    return GP_OK;
}

/* Check and convert a parameter from infer(). */
static gp_status parameter_of(gp_parameter_need *out, const gp_layer_parameter *parameter, gp_error *err)
{
    static const gp_initializer starts[] = { [GP_LAYER_START_WEIGHTS] = GP_INIT_WEIGHTS,
                                             [GP_LAYER_START_ZEROS] = GP_INIT_ZEROS,
                                             [GP_LAYER_START_ONES] = GP_INIT_ONES };

    if (parameter->role == NULL || parameter->role[0] == '\0' || strlen(parameter->role) > 15 ||
        (unsigned)parameter->start > GP_LAYER_START_ONES)
        return gp_fail(
            err, GP_EINVAL,
            "infer returned a parameter with a role that is not 1 to 15 bytes long, or with start %d",
            (int)parameter->start);
    if (parameter->start == GP_LAYER_START_WEIGHTS && (parameter->fan_in < 1 || parameter->fan_out < 1))
        return gp_fail(err, GP_EINVAL,
                       "infer returned parameter %s with fan_in %" PRId64 " and fan_out %" PRId64
                       "; both must be at least 1",
                       parameter->role, parameter->fan_in, parameter->fan_out);
    *out = (gp_parameter_need){ .role = parameter->role,
                                .fan_in = parameter->fan_in,
                                .fan_out = parameter->fan_out,
                                .initializer = starts[parameter->start] };
    return shape_of(&out->shape, &parameter->dims, parameter->role, err);
}

/* Call the user's infer() and check the limits. */
static gp_status custom_plan(const custom_kind *own, const gp_infer *infer, gp_layer_plan *plan,
                             gp_error *err)
{
    *plan = (gp_layer_plan){ .input_count = infer->input_count, .settings = infer->settings };
    for (uint32_t k = 0; k < infer->input_count; k++)
        plan->inputs[k] = gp_custom_dims(&infer->inputs[k]);
    plan->output = plan->inputs[0];
    gp_status status = own->given.infer == NULL ? GP_OK : own->given.infer(plan, err);

    if (status == GP_OK && plan->parameter_count > GP_LAYER_KIND_PARAMETERS)
        return gp_fail(err, GP_EINVAL, "infer returned %" PRIu32 " parameters, at most %d are supported",
                       plan->parameter_count, GP_LAYER_KIND_PARAMETERS);
    if (status == GP_OK && plan->saved > (size_t)1 << 28)
        return gp_fail(err, GP_ELIMIT, "infer requested to keep %zu numbers per sample", plan->saved);
    return status;
}

static gp_status custom_infer(gp_infer *infer, gp_error *err)
{
    gp_layer_plan plan;
    gp_status status = custom_plan(own_of(infer->kind), infer, &plan, err);

    if (status == GP_OK)
        status = shape_of(&infer->output, &plan.output, "an output", err);
    for (uint32_t k = 0; k < plan.parameter_count && status == GP_OK; k++)
        status = parameter_of(&infer->parameters[k], &plan.parameters[k], err);
    infer->parameter_count = plan.parameter_count;
    return status;
}

/* ---- ops ---- */

/* Build an operation with the inputs common to forward and backward. */
static gp_op custom_op(const gp_lowering *lowering, gp_opcode code)
{
    gp_op op = gp_op_init(code);

    op.own = &own_of(lowering->kind)->given;
    op.settings = lowering->settings;
    op.number[0] = lowering->phase == GP_PHASE_TRAIN;
    for (uint32_t k = 0; k < lowering->input_count; k++)
        op.in[GP_CUSTOM_X + k] = lowering->x[k];
    for (uint32_t k = 0; k < GP_LAYER_KIND_PARAMETERS; k++)
        op.in[GP_CUSTOM_PARAMETERS + k] = lowering->parameters[k];
    return op;
}

static gp_status custom_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = custom_op(lowering, GP_OP_CUSTOM);
    gp_infer infer = { .input_count = lowering->input_count, .settings = lowering->settings };
    gp_layer_plan plan = { .saved = 0 };
    gp_status status = GP_OK;

    for (uint32_t k = 0; k < lowering->input_count; k++)
        infer.inputs[k] = lowering->graph->values[lowering->x[k]].shape;
    /* infer() is called again, because lowering does not keep the result. */
    if (lowering->phase == GP_PHASE_TRAIN)
        status = custom_plan(own_of(lowering->kind), &infer, &plan, err);
    const gp_shape saved = gp_shape1((int64_t)plan.saved);

    if (status == GP_OK && plan.saved > 0)
        status = gp_lowering_save(lowering, 0, false, GP_F32, &saved, err);
    op.out[GP_CUSTOM_OUT_Y] = lowering->y;
    op.out[GP_CUSTOM_OUT_SAVED] = lowering->saved[0];
    return status == GP_OK ? gp_lowering_emit(lowering, &op, err) : status;
}

static gp_status custom_backward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = custom_op(lowering, GP_OP_CUSTOM_BACKWARD);

    op.in[GP_CUSTOM_Y] = lowering->y;
    op.in[GP_CUSTOM_DY] = lowering->dy;
    op.in[GP_CUSTOM_SAVED] = lowering->saved[0];
    for (uint32_t k = 0; k < lowering->input_count; k++)
        op.out[GP_CUSTOM_OUT_DX + k] = lowering->dx[k];
    for (uint32_t k = 0; k < GP_LAYER_KIND_PARAMETERS; k++)
        op.out[GP_CUSTOM_OUT_GRADIENTS + k] = lowering->gradients[k];
    return gp_lowering_emit(lowering, &op, err);
}

/* ---- adding ---- */

/* Check the settings and convert them to a parameter table. */
static gp_status settings_check(custom_kind *own, gp_error *err)
{
    const gp_layer_setting *settings = own->given.settings;

    for (uint32_t i = 0; settings != NULL && settings[i].name != NULL; i++) {
        if (i == GP_LAYER_KIND_SETTINGS)
            return gp_fail(err, GP_ELIMIT, "layer kind %s has more than %d settings", own->given.name,
                           GP_LAYER_KIND_SETTINGS);
        if (!(settings[i].fallback >= settings[i].min && settings[i].fallback <= settings[i].max))
            return gp_fail(
                err, GP_EINVAL, "setting %s of layer kind %s: the default %g is not between %g and %g",
                settings[i].name, own->given.name, settings[i].fallback, settings[i].min, settings[i].max);
        own->table[i] = (gp_param){ .name = settings[i].name,
                                    .type = GP_PARAM_F64,
                                    .offset = i * sizeof(double),
                                    .fallback = settings[i].fallback,
                                    .min = settings[i].min,
                                    .max = settings[i].max,
                                    .help = settings[i].help == NULL ? "" : settings[i].help };
    }
    return GP_OK;
}

/* User-defined kinds have no test cases. */
static const gp_kind_check no_checks[] = { { .samples = 0 } };

static gp_status custom_new(custom_kind **out, const gp_layer_kind *kind, gp_error *err)
{
    custom_kind *own = gp_calloc(1, sizeof(*own));
    uint32_t inputs = kind->inputs == 0 ? 1 : kind->inputs;

    if (own == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for layer kind %s", kind->name);
    own->given = *kind;
    own->kind = (gp_kind){ .name = own->given.name,
                           .help = kind->help == NULL ? "" : kind->help,
                           .flags = kind->couples_samples ? GP_KIND_COUPLES_SAMPLES : 0,
                           .extra_inputs = inputs - 1,
                           .settings_table = own->table,
                           .settings_bytes = GP_LAYER_KIND_SETTINGS * sizeof(double),
                           .checks = no_checks,
                           .infer = custom_infer,
                           .forward = custom_forward,
                           .backward = custom_backward };
    gp_status status = settings_check(own, err);

    if (status != GP_OK)
        gp_free(own);
    else
        *out = own;
    return status;
}

const gp_kind *gp_custom_find(const char *name)
{
    for (uint32_t i = 0; i < added_count; i++)
        if (strcmp(added[i]->kind.name, name) == 0)
            return &added[i]->kind;
    return NULL;
}

void gp_custom_forget(void)
{
    while (added_count > 0)
        gp_free(added[--added_count]);
}

gp_status gp_layer_kind_add(const gp_layer_kind *kind, gp_error *err)
{
    const size_t good = kind->name == NULL ? 0 : strspn(kind->name, "abcdefghijklmnopqrstuvwxyz0123456789_");

    if (good == 0 || good > 31 || kind->name[good] != '\0')
        return gp_fail(
            err, GP_EINVAL,
            "invalid name of a layer kind \"%.40s\": use 1 to 31 lower-case letters, digits and '_'",
            kind->name == NULL ? "" : kind->name);
    const gp_kind *known = gp_kind_find(kind->name);

    if (kind->forward == NULL || kind->backward == NULL || kind->inputs > GP_LAYER_KIND_INPUTS)
        return gp_fail(err, GP_EINVAL, "layer kind %s needs forward, backward and at most %d inputs",
                       kind->name, GP_LAYER_KIND_INPUTS);
    if (known != NULL && known->infer == custom_infer && own_of(known)->given.forward == kind->forward &&
        own_of(known)->given.backward == kind->backward && own_of(known)->given.infer == kind->infer)
        return GP_OK;
    if (known != NULL)
        return gp_fail(err, GP_EINVAL, "layer kind %s exists already; use another name", kind->name);
    if (added_count == GP_LAYER_KINDS_MAX)
        return gp_fail(err, GP_ELIMIT, "this worker has reached its limit of %d custom layer kinds",
                       GP_LAYER_KINDS_MAX);
    const gp_status status = custom_new(&added[added_count], kind, err);

    if (status == GP_OK)
        added_count++;
    return status;
}

/* ---- user-defined losses ---- */

typedef struct ownloss_settings {
    bool parallel; /* cannot be set by name */
} ownloss_settings;

static gp_status ownloss_infer(gp_infer *infer, gp_error *err)
{
    (void)err;
    infer->weight = 1.0; /* and no target: the network does not know it */
    return GP_OK;
}

/* Like other losses, compute the input gradient in the forward operation. */
static gp_status ownloss_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = gp_op_init(GP_OP_CUSTOM_LOSS);
    const ownloss_settings *settings = lowering->settings;

    op.in[0] = lowering->x[0];
    op.out[0] = lowering->dlogits;
    op.out[1] = lowering->sums;
    op.out[2] = lowering->scores;
    op.number[0] = settings->parallel;
    return gp_lowering_emit(lowering, &op, err);
}

static const gp_kind ownloss = {
    .name = "ownloss",
    .help = "a loss that the owner of the network computes",
    .flags = GP_KIND_LOSS,
    .settings_table = gp_no_params,
    .settings_bytes = sizeof(ownloss_settings),
    .checks = no_checks,
    .infer = ownloss_infer,
    .forward = ownloss_forward,
};

gp_status gp_custom_loss_end(gp_netspec *spec, bool parallel, gp_error *err)
{
    gp_layer *last = spec->layer_count == 0 ? NULL : &spec->layers[spec->layer_count - 1];
    gp_status status = GP_OK;

    /* Append a loss; the kind is replaced below. */
    if (last == NULL || !(last->kind->flags & GP_KIND_LOSS))
        status = gp_netspec_add(spec, "own-loss", "crossentropy", NULL, err);
    if (status != GP_OK)
        return status;
    last = &spec->layers[spec->layer_count - 1];
    memset(last->settings, 0, sizeof(last->settings));
    last->kind = &ownloss;
    ((ownloss_settings *)(void *)last->settings)->parallel = parallel;
    return GP_OK;
}
