/* Implement json_file.h. */
#include "common/base/system/json_file.h"

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"

gp_status gp_json_file_read(gp_json **out, const char *path, size_t bytes_max, gp_error *err)
{
    uint8_t *text = NULL;
    size_t bytes;
    gp_error why;
    gp_status status = gp_file_read(&text, &bytes, path, bytes_max, &why);

    if (status == GP_ELIMIT) /* too large, or not a regular file */
        status = GP_ECORRUPT;
    *out = NULL;
    if (status == GP_OK) {
        status = gp_json_parse(out, (const char *)text, bytes, &why);
        gp_free(text);
        if (status != GP_OK)
            return gp_fail(err, status == GP_ENOMEM ? status : GP_ECORRUPT, "%s: %s", path, why.message);
    }
    return status == GP_OK ? GP_OK : gp_fail(err, status, "%s", why.message);
}
