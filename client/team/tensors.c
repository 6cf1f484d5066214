/* tensors.c: typed arrays as values on the workers, and in files.
 *
 * The bytes of such a value are a .npy file: header and elements. They contain the type and the
 * shape, so a reader needs no further description and detects a mismatch. */
#include <stdio.h>
#include <string.h>

#include "client/team/team.h"
#include "client/team/values.h"
#include "common/base/memory/alloc.h"
#include "common/base/memory/tensor.h"
#include "common/base/system/file.h"
#include "common/data/format/npy.h"

#define ELEMENTS_MAX ((int64_t)1 << 36)

/* ---- checks ---- */

/* Check a tensor of the caller and write its header.
 *   bytes  set to the size of the elements */
static gp_status tensor_header(const gp_tensor *tensor, unsigned char head[GP_NPY_WRITTEN_MAX],
                               size_t *head_bytes, size_t *bytes, gp_error *err)
{
    gp_status status = gp_shape_check(&tensor->shape, ELEMENTS_MAX, err);

    if (status != GP_OK)
        return status;
    *head_bytes = gp_npy_header(head, tensor->dtype, &tensor->shape);
    if (*head_bytes == 0)
        return gp_fail(err, GP_EINVAL,
                       "the tensor has elements of type %d (%s); it must be uint8, int32, int64, float32 or "
                       "float64",
                       (int)tensor->dtype, gp_dtype_name(tensor->dtype));
    *bytes = (size_t)gp_shape_count(&tensor->shape) * gp_dtype_bytes(tensor->dtype);
    if (tensor->data == NULL && *bytes != 0)
        return gp_fail(err, GP_EINVAL, "the tensor has %zu bytes and no address", *bytes);
    return GP_OK;
}

/* Read a tensor from the bytes of a value. GP_EINVAL: not a tensor, or of another type.
 *   dtype  required type; 0: any */
static gp_status tensor_parse(gp_tensor *out, const void *data, size_t bytes, gp_dtype dtype,
                              const char *name, gp_error *err)
{
    gp_npy npy;
    gp_error why;

    if (gp_npy_parse(&npy, data, bytes, "it", &why) != GP_OK)
        return gp_fail(err, GP_EINVAL, "the value '%s' is not a tensor: %s", name, why.message);
    if (dtype != 0 && npy.dtype != dtype)
        return gp_fail(err, GP_EINVAL, "the value '%s' has elements of type %s, not %s", name,
                       gp_dtype_name(npy.dtype), gp_dtype_name(dtype));
    *out = (gp_tensor){ .dtype = npy.dtype, .shape = npy.shape, .data = npy.data };
    return GP_OK;
}

void gp_tensor_deinit(gp_tensor *tensor)
{
    if (tensor == NULL)
        return;
    gp_free(tensor->memory);
    *tensor = (gp_tensor){ .memory = NULL };
}

/* ---- files ---- */

gp_status gp_tensor_load(gp_tensor *out, const char *path, gp_error *err)
{
    gp_npy npy;
    gp_status status = gp_npy_open(&npy, path, err);

    if (status != GP_OK)
        return status;
    size_t bytes = (size_t)gp_shape_count(&npy.shape) * gp_dtype_bytes(npy.dtype);
    void *memory = gp_malloc(bytes == 0 ? 1 : bytes);

    if (memory == NULL) {
        status = gp_fail(err, GP_ENOMEM, "no memory for the %zu bytes of %s", bytes, path);
    } else {
        memcpy(memory, npy.data, bytes);
        *out = (gp_tensor){ .dtype = npy.dtype, .shape = npy.shape, .data = memory, .memory = memory };
    }
    gp_npy_close(&npy);
    return status;
}

gp_status gp_tensor_save(const gp_tensor *tensor, const char *path, gp_error *err)
{
    unsigned char head[GP_NPY_WRITTEN_MAX];
    size_t head_bytes, bytes;
    gp_file_draft draft;
    gp_status status = tensor_header(tensor, head, &head_bytes, &bytes, err);

    if (status == GP_OK)
        status = gp_file_draft_open(&draft, path, err);
    if (status != GP_OK)
        return status;
    if (!gp_write_all(draft.fd, head, head_bytes) || !gp_write_all(draft.fd, tensor->data, bytes)) {
        status = gp_fail_errno(err, GP_EIO, "cannot write '%s'", path);
        gp_file_draft_discard(&draft);
        return status;
    }
    return gp_file_draft_commit(&draft, err);
}

/* ---- values ---- */

static gp_status tensor_put(gp_team *team, uint32_t worker, const char *name, const gp_tensor *tensor,
                            gp_error *err)
{
    unsigned char head[GP_NPY_WRITTEN_MAX];
    value_bytes value = { .head = head, .data = tensor->data };
    gp_status status = tensor_header(tensor, head, &value.head_bytes, &value.bytes, err);

    return status == GP_OK ? value_put(team, worker, name, &value, err) : status;
}

gp_status gp_team_put_tensor(gp_team *team, uint32_t worker, const char *name, const gp_tensor *tensor,
                             gp_error *err)
{
    gp_status status = value_check_name(name, err);

    if (status != GP_OK)
        return status;
    team_enter(team);
    status = tensor_put(team, worker, name, tensor, err);
    team_leave(team);
    return status;
}

/* Get a tensor in memory of its own. */
static gp_status tensor_get(gp_tensor *out, gp_team *team, uint32_t worker, const char *name, gp_dtype dtype,
                            gp_error *err)
{
    team_bytes got = { 0 };
    size_t bytes;
    void *memory = NULL;
    char worker_text[TEAM_NAME_BYTES];
    gp_status status = value_get(team, worker, name, &got, err);

    if (status == GP_OK)
        status = value_to_heap(&got, &memory, &bytes, err);
    team_bytes_deinit(&got);
    if (status != GP_OK)
        return status;
    gp_error why;

    status = tensor_parse(out, memory, bytes, dtype, name, &why);
    if (status != GP_OK) {
        gp_free(memory);
        return gp_fail(err, status, "%s: %.400s", team_worker_name(team, worker, worker_text), why.message);
    }
    out->memory = memory;
    return GP_OK;
}

gp_status gp_team_get_tensor(gp_tensor *out, gp_team *team, uint32_t worker, const char *name, gp_dtype dtype,
                             gp_error *err)
{
    gp_status status = value_check_name(name, err);

    if (status != GP_OK)
        return status;
    team_enter(team);
    status = tensor_get(out, team, worker, name, dtype, err);
    team_leave(team);
    return status;
}

gp_status gp_team_scatter_tensor(gp_team *team, const char *name, const gp_tensor *tensor, gp_error *err)
{
    unsigned char head[GP_NPY_WRITTEN_MAX];
    size_t head_bytes, bytes, row;
    gp_tensor part = *tensor;
    int64_t rows;
    gp_status status = value_check_name(name, err);

    if (status == GP_OK)
        status = tensor_header(tensor, head, &head_bytes, &bytes, err);
    if (status == GP_OK && tensor->shape.rank == 0)
        status = gp_fail(err, GP_EINVAL, "the tensor '%s' has no dimension to scatter; use put", name);
    if (status != GP_OK)
        return status;
    rows = tensor->shape.dim[0];
    row = rows == 0 ? 0 : bytes / (size_t)rows;
    team_enter(team);
    const uint32_t size = team->size; /* workers that join meanwhile get no part */

    for (uint32_t w = 1; status == GP_OK && w <= size; w++) {
        part.shape.dim[0] = rows / size + (w <= rows % size);
        status = tensor_put(team, w, name, &part, err);
        part.data =
            part.data == NULL ? NULL : (const unsigned char *)part.data + (size_t)part.shape.dim[0] * row;
    }
    team_leave(team);
    return status;
}

/* Check that a part continues the first one: the same type, and the same dimensions after the
 * first. */
static gp_status part_check(const gp_tensor *first, const gp_tensor *part, const char *name,
                            const char *worker, gp_error *err)
{
    gp_shape a = first->shape, b = part->shape;
    char text[2][128];

    if (b.rank == 0)
        return gp_fail(err, GP_EINVAL, "%s: the value '%s' is a scalar, which cannot be gathered", worker,
                       name);
    a.dim[0] = b.dim[0];
    if (part->dtype == first->dtype && gp_shape_equal(&a, &b))
        return GP_OK;
    return gp_fail(err, GP_EINVAL, "%s: the part of '%s' is %s %s, but that of worker 1 is %s %s", worker,
                   name, gp_dtype_name(part->dtype), gp_shape_format(&part->shape, text[0], sizeof(text[0])),
                   gp_dtype_name(first->dtype), gp_shape_format(&first->shape, text[1], sizeof(text[1])));
}

static size_t tensor_bytes(const gp_tensor *tensor)
{
    return (size_t)gp_shape_count(&tensor->shape) * gp_dtype_bytes(tensor->dtype);
}

gp_status gp_team_gather_tensor(gp_tensor *out, gp_team *team, const char *name, gp_dtype dtype,
                                gp_error *err)
{
    gp_tensor parts[GP_MEMBERS_MAX] = { { .memory = NULL } }, whole = { .memory = NULL };
    size_t at = 0, total = 0;
    gp_status status = value_check_name(name, err);

    if (status != GP_OK)
        return status;
    team_enter(team);
    const uint32_t size = team->size;

    for (uint32_t w = 1; status == GP_OK && w <= size; w++) {
        char worker[TEAM_NAME_BYTES];

        status = tensor_get(&parts[w - 1], team, w, name, dtype, err);
        if (status == GP_OK)
            status = part_check(&parts[0], &parts[w - 1], name, team_worker_name(team, w, worker), err);
        total += status == GP_OK ? tensor_bytes(&parts[w - 1]) : 0;
    }
    team_leave(team);
    if (status == GP_OK && (whole.memory = gp_malloc(total == 0 ? 1 : total)) == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for %zu gathered bytes", total);
    for (uint32_t i = 0; status == GP_OK && i < size; i++) {
        size_t bytes = tensor_bytes(&parts[i]);

        memcpy((unsigned char *)whole.memory + at, parts[i].data, bytes);
        at += bytes;
        if (i == 0)
            whole.shape = parts[0].shape;
        else
            whole.shape.dim[0] += parts[i].shape.dim[0];
    }
    if (status == GP_OK) {
        whole.dtype = parts[0].dtype;
        whole.data = whole.memory;
        *out = whole;
    }
    for (uint32_t i = 0; i < size; i++)
        gp_tensor_deinit(&parts[i]);
    return status;
}
