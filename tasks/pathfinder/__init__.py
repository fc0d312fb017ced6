"""Pathfinder and Path-X: the law, the generator, the official files, and the tasks.

The generator follows `snakes2_wrapper.py`, `snakes2.py` and `snakes.py` of drewlinsley/pathfinder
(commit ab9c130) step by step. The original's names on the left, and the names of this package:

    snake                              contour: two targets, and distractors
    paddle, segment                    dash
    orientation                        direction: an index of Primitives' lists
    current_mask                       DrawingState.mask
    segment mask (m_im)                halo: a dash dilated by the margin
    struct                             footprint: what the first dash of a contour needs free
    origin_tips, terminal_tips         Trace.tips
    pmf, cmf                           Primitives.turn_weights, DrawingState.cumulative_weights

    window_size                        Law.size
    contour_length                     Law.contour_dashes
    distractor_length                  Law.distractor_dashes
    num_distractor_snakes              Law.distractors
    paddle_length, paddle_thickness    Law.dash_length, Law.thickness
    paddle_margin_list                 Law.margins
    antialias_scale, aa_scale          Law.antialias
    padding, seed_distance, marker_radius, continuity          the same in Law
    paddle_contrast_list times snake_contrast_list             Law.target_contrast
    snake_contrast_list                                        Law.distractor_contrast
    max_paddle_retrial + 1, max_segment_trial + 1              Law.dash_draws
    max_distractor_contour_retrial + 1, max_snake_trial + 1    Law.distractor_draws

    from_wrapper                       draw.draw_images
    two_snakes                         contours.grow_targets
    initialize_two_seeds               contours._start_first_target, _start_second_target
    make_many_snakes                   the loop over distractors in draw._grow_contours
    make_snake, seed_snake             contours.grow_distractor, _start_distractor
    extend_snake                       contours._extend_contour
    find_available_coordinates         contours._find_start
    translate_coord                    contours.move
    binary_dilate_custom               DrawingState.dilated_mask, kept up to date by _add_halo
    get_coords_cmf                     primitives._list_circle_points, _list_turns
    draw_line_n_mask                   primitives._draw_dash
    generate_dilation_struct           primitives._disk
    draw_circle                        primitives._draw_markers, draw._paint_marker

All other names are this package's own.
"""

from tasks.pathfinder.pathx import PathX
from tasks.pathfinder.task import Pathfinder

__all__ = ["PathX", "Pathfinder"]
