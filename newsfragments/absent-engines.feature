`sticky check` and `sticky doctor` say that the Docker Engine of a Server is missing or may not be used, or lacks its image, and `sticky check` names
the image.
