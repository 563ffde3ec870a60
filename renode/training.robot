*** Comments ***
The example learns real images, and does to the bit what the host simulator does. ${GOLDEN} names what golden_session.py wrote:
the images, and what the simulator, the firmware built for this machine, said to them.

*** Settings ***
Resource                keywords.resource
Variables               ${GOLDEN}

*** Keywords ***
Send Image
    [Arguments]                 ${image}
    FOR    ${part}    IN    @{image.parts}
        Write To Uart               ${part.rows}
        Wait For Line On Uart       ^${part.last}$    treatAsRegex=true
    END

Answers
    [Documentation]    What the device says to images, which is to be what the simulator said.
    [Arguments]                 ${images}
    ${answers}=                 Create List
    FOR    ${image}    IN    @{images}
        Send Image                  ${image}
        Write Line To Uart          ${image.command}    waitForEcho=false
        ${found}=                   Wait For Line On Uart    ^(logits|ok train|ok eval) .*    treatAsRegex=true
        Should Be Equal             ${found.Line}    ${image.answer}
        Evaluate                    $answers.append($found.Line)
    END
    RETURN                      ${answers}

Right Ones
    [Documentation]    Images of which the class is predicted.
    [Arguments]                 ${images}
    Ask                         stats clear    ^ok$
    ${answers}=                 Answers    ${images}
    ${right}=                   Evaluate    int($answers[-1].split()[4])
    RETURN                      ${right}

Mean Loss
    [Arguments]                 ${answers}
    ${mean}=                    Evaluate    sum(float(line.split()[4]) for line in $answers) / len($answers)
    RETURN                      ${mean}

*** Test Cases ***
The Firmware Is The One That Was Simulated
    Power On
    Wait For Line On Uart       ^microtrain ${BOARD} ${MODEL}$    treatAsRegex=true

Logits Are The Simulator's
    Boot
    Answers                     ${PROBES}

A Session Of Real Images Lowers The Loss, Raises The Accuracy And Ends With The Simulator's Weights
    Boot
    ${before}=                  Right Ones    ${UNSEEN_BEFORE}
    ${losses}=                  Answers    ${SESSION}
    ${after}=                   Right Ones    ${UNSEEN_AFTER}
    ${first}=                   Mean Loss    ${losses}[:30]
    ${last}=                    Mean Loss    ${losses}[-30:]
    Should Be True              ${last} < 0.8 * ${first}
    Should Be True              ${after} > 2 * ${before}
    ${sha}=                     Trainables
    Should Be Equal             ${sha}    ${TRAINED}
