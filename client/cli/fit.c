#include "client/cli/fit.h"

/* In the order of gp_fit. */
const char *const fit_words[] = { "model", "input", "resize", "windows", NULL };

int fit_check(cli_call *call, const fit_options *fit, const int64_t image_size[2])
{
    if (fit->fit == GP_FIT_RESIZE && image_size[0] != 0)
        return cli_usage(call, "--image-size is of windows and crops; --fit is resize");
    if ((fit->fit == GP_FIT_RESIZE || fit->fit == GP_FIT_INPUT) && fit->overlap != 0)
        return cli_usage(call, "--overlap is of windows; --fit is %s", fit_words[fit->fit]);
    return CLI_OK;
}

void fit_request(gp_predict_request *request, const fit_options *fit)
{
    request->fit = (gp_fit)fit->fit;
    request->overlap = (uint32_t)fit->overlap;
}
